"""Read the host's state back at the end."""

from __future__ import annotations

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.deploy.summary import rows
from lockstep.units.scripts import switch_path
from tasks import report, run
from tasks.facts import host as facts
from tasks.remote import Commands

READ_BACK = {"units", "environments", "machine.available"}


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
    engines = found["environments"]
    address = host.data.get("ssh_hostname") or host.name
    user = host.data.get("ssh_user")
    ssh = f"ssh {user}@{address}" if user else f"ssh {address}"
    unasked, available = this.unasked(engines), found["machine.available"]
    report.of(host.name).snapshot = {
        "rows": rows(this.plan, found["units"], engines, available, unasked),
        "ssh": this.plan.settings.login or ssh,
        "switch": switch_path(this.plan.settings),
        "unanswered": {
            digest: record.get("unanswered") or ""
            for digest, record in engines["images"].items()
            if record
        },
    }
    yield from ()
