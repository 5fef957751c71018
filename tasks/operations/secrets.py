"""Keys that are made on the host and never leave it, and secrets of the operator's machine."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import API_KEY, WEBUI_SECRETS, command
from lockstep.tasks import remote_commands, run_state
from lockstep.tasks.facts import reader_answers as facts
from lockstep.tasks.operations.files import file_writing_commands
from lockstep.tasks.remote_commands import Commands

_PROGRAM = command("make-secrets")


@operation()
def make_webui_secrets(email: str) -> Commands:
    """Make Open WebUI's secret key and administrator once, in a file of mode 0600.

    The values are drawn on the host; only the file's mode and owner are ever read back. An `email`
    of "" makes no administrator.
    """
    if _has_secret_file(WEBUI_SECRETS):
        host.noop("Open WebUI has its keys")
        return
    yield remote_commands.changing_command([*_PROGRAM, WEBUI_SECRETS, email])


@operation()
def make_api_key(units: Sequence[str]) -> Commands:
    """Make the key that clients of open models send, once, in a file of mode 0600.

    `units` read it when they start.
    """
    if _has_secret_file(API_KEY):
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


def _has_secret_file(path: str) -> bool:
    present_files = facts.reader_answer("files")
    present = present_files[path] if present_files else None
    if present is None:
        return False
    return (present["mode"], present["owner"], present["group"]) == ("0600", "root", "root")
