"""A secret of an inventory: printed by a command, or read from a file, on the operator's machine.

Any command that prints it will do: 1Password, pass, sops, age, vault. The secret is read once in a
run, and only where the run needs it. No error, lock, log or argument holds it.
"""

from __future__ import annotations

import contextlib
import resource
import shlex
import subprocess
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from lockstep.core.errors import LockstepError
from lockstep.inventory import values
from lockstep.onhost.core.schema import Rule

#: Time for a command, seconds: somebody may have to touch a key or to type a password.
LIMIT_S = 60.0
#: Longest secret, bytes.
LONGEST = 64 * 1024


@dataclass(frozen=True)
class SecretSource:
    """The place of a secret.

    Attributes:
        command: Program with its arguments, without a shell; its output is the secret.
        file: Path on the operator's machine; "~" is the operator's home. A relative path is below
            the folder in which the command was started.
    """

    is_secret: ClassVar[bool] = True
    command: tuple[values.Printable, ...] = ()
    file: values.Printable | None = None

    @property
    def source_text(self) -> str:
        """The command as a shell would take it, or the path."""
        return shlex.join(self.command) if self.command else str(self.file)


#: The type of a secret in inventory data: {"command": ("op", "read", "op://…")} or {"file": PATH}.
Secret = Annotated[
    SecretSource,
    Rule(
        "names no secret",
        lambda source: bool(source.command) != bool(source.file) and all(source.command[:1]),
        'either {"command": ("op", "read", "op://…")} or {"file": "~/secret"}',
    ),
]


def read(source: SecretSource, *, key: str, where: str, lines: bool = False) -> str:
    """Return the secret, without the line's end after it; a source is asked once in a process.

    Args:
        source: The place of the secret.
        key: The key of the inventory, for errors ("hub_token").
        where: The host that it is for, for errors.
        lines: Whether it may have several lines, as PEM has.

    Raises:
        LockstepError: the secret cannot be read. Nothing that the command printed is in the
            message.
    """
    try:
        with _one_at_a_time:
            text = _text(source)
    except _Unusable as fault:
        raise _refusal(source, key, where, str(fault)) from None
    if not lines and not (text.isprintable() and text.isascii()):
        raise _refusal(source, key, where, "more than one line, or characters beyond ASCII")
    return text


_one_at_a_time = threading.Lock()


class _Unusable(Exception):
    """The reason why there is no secret; it never quotes what was printed."""


def _refusal(source: SecretSource, key: str, where: str, reason: str) -> LockstepError:
    description = f"the command of {key}" if source.command else f"the file of {key}"
    return LockstepError(
        f"{description} gives no secret",
        where=where,
        found=f"`{source.source_text}`: {reason}",
        remedy="Run it yourself, and look at what it says."
        if source.command
        else "Put the secret there, or correct the path.",
    )


@cache
def _text(source: SecretSource) -> str:
    _no_dumps()
    whole = _read_output(source.command) if source.command else _read_file(str(source.file))
    if len(whole) > LONGEST:
        raise _Unusable(f"more than {LONGEST} bytes")
    try:
        text = whole.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _Unusable("no text in UTF-8") from None
    if not text.strip():
        raise _Unusable("nothing")
    return text


def _read_file(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(LONGEST + 1)
    except (OSError, RuntimeError) as fault:
        raise _Unusable(getattr(fault, "strerror", None) or str(fault)) from None


def _read_output(command: tuple[str, ...]) -> bytes:
    """Return a command's standard output. Other output may hold the secret, so it is dropped."""
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
    except OSError as fault:
        raise _Unusable(fault.strerror or "it cannot be started") from None
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise _Unusable(f"it did not end within {LIMIT_S:.0f} s") from None
    finally:
        # A child of the command may hold the pipe open; nothing waits for it.
        with contextlib.suppress(OSError):
            process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()
    if process.returncode:
        raise _Unusable(f"it ended with {process.returncode}")
    return output


def _no_dumps() -> None:
    """Prevent a dump of this process' memory when it crashes.

    The limit is one byte, not none: without a limit the kernel still gives a process to a program
    that stores dumps (core(5)), and with this limit to nobody.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    least = 1 if most == resource.RLIM_INFINITY else min(1, most)
    resource.setrlimit(resource.RLIMIT_CORE, (least, most))
