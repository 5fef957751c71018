"""Switch a model on behalf of the unprivileged gateway, and report the progress.

usage: gateway-switch

Started as root by lockstep-gateway-switch.socket for each connection, which is its standard input
and output. Takes one line from root or the gateway's account: {"model": NAME, "none" or "cancel",
"person": the person asking, or null for the gateway itself}. Does what `switch.sh MODEL` does.
Each line of output comes as {"phase": ..., "line": ..., "kind": one of `output.KINDS` or ""}; the
last one is {"code": exit code of switch.sh, "said": its last words, or why it failed}. A lost
connection ends the display, not the switch.

exit codes: 0 reported the outcome, or nobody listens any more; 2 not a request; 77 not permitted
"""

from __future__ import annotations

import json
import pwd
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from lockstep.onhost.core import (
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
)
from lockstep.onhost.gateway import keys
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.systemd import transient_job

#: As the model: cancel the switch under way.
CANCEL = "cancel"
_MOST_BYTES = 4096
_LINE_S = 5.0
# The name goes on systemd-run's command line, where "$" and "%" have a meaning.
_PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    program_command_lines.parser(__doc__).parse_args(argv)
    with socket.socket(fileno=0) as asker:
        try:
            check_asker(asker)
            name, user = parse_switch_request(receive_request_line(asker))
        except errors.Problem as problem:
            _tell({"code": problem.code, "said": str(problem)})
            raise
        run_and_report_switch(name, user, paths or layout.Paths(), _tell)
    return errors.EXIT_DONE


def check_asker(asker: socket.socket) -> None:
    """Check that the other end is root or the gateway; else raise Problem (not permitted)."""
    credentials = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, account, _ = struct.unpack("3i", credentials)
    if account == 0:
        return
    with suppress(KeyError):
        if account == pwd.getpwnam(keys.ACCOUNT).pw_uid:
            return
    message = f"account {account} may not switch here, only {keys.ACCOUNT} may"
    raise errors.Problem(message, errors.EXIT_NOT_PERMITTED)


def receive_request_line(asker: socket.socket) -> bytes:
    """Return the request's line. Raise Problem (wrong use) if it is long or does not come."""
    until, data = time.monotonic() + _LINE_S, b""
    while b"\n" not in data:
        asker.settimeout(max(0.01, until - time.monotonic()))
        try:
            part = asker.recv(_MOST_BYTES)
        except OSError:
            part = b""
        data += part
        if not part or len(data) > _MOST_BYTES:
            message = f"no line of at most {_MOST_BYTES} bytes within {_LINE_S:.0f} s"
            raise errors.Problem(message, errors.EXIT_USAGE)
    # Output goes there by print(), which knows no timeout.
    asker.settimeout(None)
    return data.partition(b"\n")[0]


def parse_switch_request(line: bytes) -> tuple[str, str]:
    """Return model and person, the latter as in the lock. Raise Problem (wrong use) if invalid."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        data = json.loads(line)
        name, person = data["model"], data["person"]
        if data.keys() == {"model", "person"} and isinstance(name, str):
            if person is None:
                return name, "the gateway"
            if _PERSON.fullmatch(person):
                return name, f"{person}, by the gateway"
    raise errors.Problem('expected {"model": NAME, "person": NAME or null}', errors.EXIT_USAGE)


def run_and_report_switch(
    name: str, user: str, paths: layout.Paths, tell: Callable[[dict[str, Any]], None]
) -> None:
    """Run the switch and report its lines and its outcome, also a refusal."""
    lines, phase = list[str](), "check"

    def say(line: str) -> None:
        nonlocal phase
        lines.append(line)
        kind = event_lines.kind_of(line)
        kind_phase = "test_question" if kind == "answer" else kind
        phase = kind_phase if kind_phase in event_lines.PHASES else phase
        tell({"phase": phase, "line": line, "kind": kind})

    try:
        if name == CANCEL:
            code = switch_sh.cancel_switch(user, paths, say)
        else:
            if name != "none":
                config.load_host(paths.models).model(name)
            code = switch_sh.run_switch(name, user, paths, wait=False, say=say)
        why = summarise_switch_end(lines)
        if code == transient_job.EXIT_ALONE:
            return
    except switch_lock.SwitchUnderWay as problem:
        code, why = problem.code, problem.holder_text
    except errors.Problem as problem:
        code, why = problem.code, str(problem)
    tell({"code": code, "said": why})


def summarise_switch_end(lines: Sequence[str]) -> str:
    """Summarise the end of a switch: the first failure and its reason, then the last line."""
    why: list[str] = []
    for line in lines:
        kind = event_lines.kind_of(line)
        if kind == ("why" if why else "failed"):
            why.append(line.strip())
        elif why:
            break
    last = [line for line in lines[-1:] if line.strip() not in why]
    return "; ".join([*why, *last]).removeprefix("switch.sh: ")


def _tell(message: dict[str, Any]) -> None:
    event_lines.say(json.dumps(message))
