"""Read the host's state back at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.deploy.summary import hot_names, rows
from lockstep.files.managed_file import SYSTEMD
from lockstep.tasks import report, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.operations.generations import RECORD
from lockstep.tasks.remote import Commands
from lockstep.units.gateway_unit import chat_url, local_url, open_url
from lockstep.units.scripts import switch_path

# The record is asked for with them, for the operation after this one.
READ_BACK = {"units", "environments", "machine.available", RECORD}


@operation()
def read_back() -> Commands:
    """Collect units, engine versions and what is hot for the closing table; changes nothing."""
    host.noop("the state is read, nothing is written")
    if not state.is_executing:
        return
    this = run.current()
    found = facts.ask_together(READ_BACK)
    if not set(found) >= READ_BACK:
        return
    for said in not_in_force(this.unit_files, found["units"]):
        report.news(host.name, f"{host.name}: {said}")
    engines = found["environments"]
    address = host.data.get("ssh_hostname") or host.name
    user = host.data.get("ssh_user")
    ssh = f"ssh {user}@{address}" if user else f"ssh {address}"
    unasked, available = this.unasked(engines), found["machine.available"]
    report.of(host.name).snapshot = {
        "rows": rows(this.plan, address, found["units"], engines, available, unasked),
        "ssh": this.plan.settings.login or ssh,
        "switch": switch_path(this.plan.settings),
        "serves": [target.name for target in this.plan.targets],
        "hot": list(hot_names(this.plan, found["units"])),
        "page": open_url(this.plan.settings, address) or local_url(this.plan.settings),
        "chat": chat_url(this.plan.settings, address),
        "unanswered": {
            digest: record.get("unanswered") or ""
            for digest, record in engines["images"].items()
            if record
        },
    }
    yield from ()


def not_in_force(units: Sequence[str], states: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What of the units that a deploy wrote systemd does not hold as they were written, in words.

    Args:
        units: Names of units of ours.
        states: What the reader `units` says of them.
    """
    for name in units:
        shown, written = states.get(name, {}), f"{SYSTEMD}/{name}"
        load, read = shown.get("LoadState", "loaded"), shown.get("FragmentPath") or written
        if load != "loaded":
            yield f"{name} was written, and is {load} for systemd: `systemctl status {name}`"
        elif read != written:
            yield f"systemd reads {read}, not {written}: remove the former, and deploy again"
        elif shown.get("NeedDaemonReload") == "yes":
            yield f"systemd holds an older {name} than was written: `sudo systemctl daemon-reload`"
