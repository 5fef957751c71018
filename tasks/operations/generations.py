"""Records the result of a deploy on the host: for rollback, gc and comparison."""

from __future__ import annotations

import json
from typing import Any

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import ManagedFile, command
from lockstep.host.generation import contents
from lockstep.host.specs import weights_spec
from tasks import remote, run
from tasks.facts import host as facts
from tasks.remote import Commands


@operation()
def recorded() -> Commands:
    """Record what the host is now, unless the newest record says so already."""
    newest = facts.ask("records.generation")
    if newest is None:
        return
    present = contents_of(run.current().files("services"))
    if (newest.get("digest"), newest.get("lock")) == (present["digest"], present["lock"]):
        host.noop(f"this is generation {newest['number']}")
        return
    program = command("generations", "record")
    yield remote.words(program, _stdin=[json.dumps(present)])


def contents_of(files: list[ManagedFile]) -> dict[str, Any]:
    """The record of the current host, whose model units are these files."""
    this = run.current()
    return contents(
        this.plan.settings,
        this.pins,
        engine_id=this.engine_id if this.engine_spec else "",
        images=this.images,
        weights=weights_spec(this.plan, this.pins),
        files=files,
    )
