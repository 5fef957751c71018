"""Keys that are made on the host and never leave it, and secrets of the operator's machine."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import API_KEY, WEBUI_SECRETS, command
from lockstep.resources.files import has_secret
from lockstep.tasks.operations.files import file_writing_commands
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_state
from lockstep.tasks.run.remote_commands import Commands

_PROGRAM = command("make-secrets")


@operation()
def make_webui_secrets(email: str) -> Commands:
    """Make Open WebUI's secret key and administrator once, in a file of mode 0600.

    The values are drawn on the host; only the file's mode and owner are ever read back. An `email`
    of "" makes no administrator.
    """
    if has_secret(facts.reader_answer("files"), WEBUI_SECRETS):
        host.noop("Open WebUI has its keys")
        return
    yield remote_commands.changing_command([*_PROGRAM, WEBUI_SECRETS, email])


@operation()
def make_api_key(units: Sequence[str]) -> Commands:
    """Make the key that clients of open models send, once, in a file of mode 0600.

    `units` read it when they start.
    """
    if has_secret(facts.reader_answer("files"), API_KEY):
        host.noop("the API key is there")
        return
    states = facts.reader_answer("units") or {}
    running = [unit for unit in units if states.get(unit, {}).get("ActiveState") == "active"]
    yield remote_commands.changing_command([*_PROGRAM, API_KEY])
    if running:
        # A running unit must not go on accepting a key that somebody removed.
        yield remote_commands.changing_command(["systemctl", "restart", *running])


@operation()
def write_secrets() -> Commands:
    """Write the secrets that this run has read, without showing them."""
    yield from file_writing_commands(run_state.secret_files())
