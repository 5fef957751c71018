"""The firewall: the deploy's own table, and the rules of others."""

from __future__ import annotations

import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reader_helpers import Facts, digest, run, seal
from lockstep.onhost.system.firewall_trial import FirewallTrial

# Docker makes rules of its own for every container, in these tables.
_OF_DOCKER = {f"{family} {name}" for family in ("ip", "ip6") for name in ("nat", "raw", "mangle")}


def read(question: dict[str, str]) -> dict[str, Any]:
    """Return the state of the deploy's firewall.

    Args:
        question: Path of the rules that are "kept".

    Returns:
        Digest of the rules that are loaded at boot ("kept"), whether the kernel still has the rules
        of the last load ("live").
    """
    return {
        "kept": digest(question["kept"]),
        "live": FirewallTrial(layout.Paths()).is_table_unchanged(),
    }


def foreign_rules(question: dict[str, Any]) -> Facts:
    """Yield the host's own rules, without Docker's, which follow its containers."""
    for rule in run("iptables", "-S").stdout.splitlines():
        if re.match(r"-[AP] (INPUT|OUTPUT|DOCKER-USER)\b", rule):
            yield "firewall", rule, "present"
    for line in run("nft", "list", "tables").stdout.splitlines():
        name = line.removeprefix("table ").strip()
        # The deploy's own table follows the open ports of each host.
        is_ours = name.rpartition(" ")[2].startswith("lockstep")
        if name not in _OF_DOCKER | {"ip filter", "ip6 filter"} and not is_ours:
            table_text = run("nft", "-s", "list", "table", *name.split()).stdout
            yield "firewall", f"table {name}", seal(question["key"], table_text.encode())
