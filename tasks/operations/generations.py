"""Records the result of a deploy on the host: for rollback, gc and comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.files.managed_file import command
from lockstep.tasks import remote, report, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands

RECORD = "records.generation"


@operation()
def begun() -> Commands:
    """Note what the host is about to become, so that an end that is not good is known as one."""
    newest = facts.ask(RECORD)
    if newest is None:
        return
    present = run.current().generation
    if _same(newest, present) or _same(newest.get("begun", {}), present):
        host.noop("nothing of another generation begins")
        return
    yield remote.words(command("generations", "begin"), _stdin=[json.dumps(present)])


@operation()
def recorded() -> Commands:
    """Record what the host is now, unless the newest record says so already.

    The last of a deploy: one that fails anywhere leaves the record of the generation before.
    """
    newest = facts.ask(RECORD)
    if newest is None:
        return
    present = run.current().generation
    if _same(newest, present) and "begun" not in newest:
        host.noop(f"this is generation {newest['number']}")
        return
    program = command("generations", "record")
    yield remote.words(program, _stdin=[json.dumps(present)])
    # pyinfra goes on here only when the command succeeded.
    if state.is_executing:
        report.of(host.name).generation = "new"


def _same(found: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Whether two records are of the same contents and the same lock."""
    return all(found.get(key) == present[key] for key in ("digest", "lock"))
