"""Record of a deploy's result on the host: for rollback, gc and comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.files.managed_file import command
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_report, run_state
from lockstep.tasks.run.remote_commands import Commands

RECORD = "deploy_records.generation"


@operation()
def begin_generation() -> Commands:
    """Record the state that the host is about to get, so that a bad end is known as one."""
    newest = facts.reader_answer(RECORD)
    if newest is None:
        return
    present = run_state.current_desired_state().generation_document
    if _has_same_contents(newest, present) or _has_same_contents(newest.get("begun", {}), present):
        host.noop("nothing of another generation begins")
        return
    yield remote_commands.changing_command(
        command("generations", "begin"), _stdin=[json.dumps(present)]
    )


@operation()
def record_generation() -> Commands:
    """Record the present state of the host, unless the newest record has it already.

    This is the last step of a deploy: one that fails anywhere leaves the record of the generation
    before.
    """
    newest = facts.reader_answer(RECORD)
    if newest is None:
        return
    present = run_state.current_desired_state().generation_document
    if _has_same_contents(newest, present) and "begun" not in newest:
        host.noop(f"this is generation {newest['number']}")
        return
    program = command("generations", "record")
    yield remote_commands.changing_command(program, _stdin=[json.dumps(present)])
    # pyinfra goes on here only when the command succeeded.
    if state.is_executing:
        run_report.outcome_of_host(host.name).generation = "new"


def _has_same_contents(record: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Tell whether two records have the same contents and the same lock."""
    return all(record.get(key) == present[key] for key in ("digest", "lock"))
