"""The firewall: the deploy's own table, and the rules of others."""

from __future__ import annotations

import re
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reader_helpers import Facts, run, seal
from lockstep.onhost.system.firewall_trial import LIST_TABLE, TABLE, FirewallTrial

# Docker makes rules of its own for every container, in these tables.
_OF_DOCKER = {f"{family} {name}" for family in ("ip", "ip6") for name in ("nat", "raw", "mangle")}


def read(question: dict[str, Any]) -> Facts:
    """Yield the deploy's table, as the keyed hash of the rules that are loaded at boot.

    A table that is not as the last load made it has other rules. `question` has the "key".
    """
    trial, table = FirewallTrial(layout.Paths()), run(*LIST_TABLE).stdout
    if table:
        kept_rules = trial.kept_file.read_bytes() if trial.kept_file.exists() else b""
        is_own = trial.is_as_loaded(table)
        value = seal(question["key"], kept_rules) if is_own else "other rules"
        yield "firewall table", " ".join(TABLE), value


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
