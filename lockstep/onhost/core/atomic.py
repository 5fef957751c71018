"""Files replaced whole: who reads one sees the old text or the new one, also after a power cut."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lockstep.onhost.core import process

#: Begins the name of a new file before it has its own; the process that writes it comes next.
PREFIX = ".lockstep-"
#: Names or ids of account and group; None: those of this process.
Owner = tuple[str | int, str | int] | None


def write(path: Path, text: str, *, mode: int = 0o644, owner: Owner = None) -> None:
    """Replace a file. A folder that is missing is made, and is private where the file is.

    A link at its place is replaced, not followed. What the text holds beside UTF-8 is escaped as
    Python does. Nobody else can read the file before it has its mode.

    Raises:
        OSError: as the file system gives it; what was there stays.
        LookupError: an account or group that does not exist; what was there stays.
    """
    private = mode & 0o077 == 0
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)
    handle, name = tempfile.mkstemp(prefix=unfinished(), dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            if owner is not None:
                shutil.chown(new, *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink()
        raise


def write_json(path: Path, value: object, *, mode: int = 0o644, owner: Owner = None) -> None:
    """`write` of a JSON document."""
    write(path, json.dumps(value, indent=1) + "\n", mode=mode, owner=owner)


def read_json(path: Path) -> Any:
    """A JSON document; None where there is none that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def link(path: Path, target: str) -> None:
    """Replace a symbolic link, or what is in its place."""
    new = path.with_name(f"{unfinished()}{path.name}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)


def unfinished() -> str:
    """What the name of a new file or folder of this process begins with until it has its own."""
    return f"{PREFIX}{os.getpid()}-{process.start_of(os.getpid())}-"


def is_left(path: Path) -> bool:
    """Whether a file with such a name was left by a program that was killed."""
    pid, _, rest = path.name.removeprefix(PREFIX).partition("-")
    start = rest.partition("-")[0]
    # Versions before 2026-11-26 named no process.
    return not (pid.isdigit() and start.isdigit() and process.is_alive(int(pid), int(start)))


def flush(path: Path) -> None:
    """Have a file's text, or the names in a folder, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
