"""The firewall: the deploy's own table, and the rules of others."""

from __future__ import annotations

import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reading import Facts, digest, output, run, seal, states
from lockstep.onhost.system.firewall import Firewall

# Docker makes rules of its own for every container, in these tables.
_OF_DOCKER = {f"{family} {name}" for family in ("ip", "ip6") for name in ("nat", "raw", "mangle")}


def read(asked: dict[str, str]) -> dict[str, Any]:
    """The deploy's firewall: digest of the rules that are loaded at boot ("kept"), whether the
    kernel still has what the last load made ("live"), what systemd says of the unit ("state").
    Asked: Path of the rules that are "kept", name of the "unit".
    """
    properties = "--property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload"
    found = states(output("systemctl", "show", properties, asked["unit"]))
    return {
        "kept": digest(asked["kept"]),
        "live": Firewall(layout.Paths()).in_force(),
        "state": found.get(asked["unit"], {}),
    }


def every(asked: dict[str, Any]) -> Facts:
    """Rules of the host's own; Docker's, which follow its containers, are left out."""
    for rule in run("iptables", "-S").stdout.splitlines():
        if re.match(r"-[AP] (INPUT|OUTPUT|DOCKER-USER)\b", rule):
            yield "firewall", rule, "present"
    for line in run("nft", "list", "tables").stdout.splitlines():
        name = line.removeprefix("table ").strip()
        # The deploy's own table follows what each host is asked to open.
        ours = name.rpartition(" ")[2].startswith("lockstep")
        if name not in _OF_DOCKER | {"ip filter", "ip6 filter"} and not ours:
            told = run("nft", "-s", "list", "table", *name.split()).stdout
            yield "firewall", f"table {name}", seal(asked["key"], told.encode())
