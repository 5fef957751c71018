"""Read the host's state back at the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator

from pyinfra import host, state
from pyinfra.api import StringCommand, operation
from pyinfra.facts.server import Command

from lockstep.deploy.summary import rows
from lockstep.files.managed_file import command
from lockstep.units.scripts import switch_path
from tasks import engine_state, report, run
from tasks.facts.host import Units


@operation()
def read_back() -> Generator[StringCommand, None, None]:
    """Collect units, engine versions and what is hot for the closing table; changes nothing."""
    host.noop("the state is read, nothing is written")
    if not state.is_executing:
        return
    this = run.current()
    names = [*this.model_units, *this.webui_units]
    units = host.get_fact(Units, asked={"units": names})
    engines = engine_state.ask()
    text = host.get_fact(
        Command, command=f"{shlex.join(command('switch', 'status', '--json'))} || true"
    )
    if units is None or engines is None:
        return
    try:
        status = json.loads(text or "{}")
    except ValueError:
        status = {}
    address = host.data.get("ssh_hostname") or host.name
    user = host.data.get("ssh_user")
    ssh = f"ssh {user}@{address}" if user else f"ssh {address}"
    login = this.plan.settings.login or ssh
    report.running(
        host.name,
        {
            "rows": rows(this.plan, units, engines, status),
            "ssh": login,
            "switch": switch_path(this.plan.settings),
            "unanswered": {
                digest: record.get("unanswered") or ""
                for digest, record in engines["images"].items()
                if record
            },
        },
    )
    yield from ()
