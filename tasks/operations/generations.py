"""Records the result of a deploy on the host: for rollback, gc and comparison."""

from __future__ import annotations

import json

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.files.managed_file import command
from tasks import remote, report, run
from tasks.facts import host as facts
from tasks.remote import Commands


@operation()
def recorded() -> Commands:
    """Record what the host is now, unless the newest record says so already."""
    newest = facts.ask("records.generation")
    if newest is None:
        return
    present = run.current().generation
    if (newest.get("digest"), newest.get("lock")) == (present["digest"], present["lock"]):
        host.noop(f"this is generation {newest['number']}")
        return
    program = command("generations", "record")
    yield remote.words(program, _stdin=[json.dumps(present)])
    # pyinfra goes on here only when the command succeeded.
    if state.is_executing:
        report.of(host.name).generation = "new"
