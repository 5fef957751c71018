"""Files replaced whole: readers see the old text or the new one, also after a power cut."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lockstep.onhost.core import process_liveness

#: Start of the name of a temporary file; the id of the process that writes it comes next.
PREFIX = ".lockstep-"
#: Names or ids of account and group; None means those of this process.
Owner = tuple[str | int, str | int] | None


def write(path: Path, text: str, *, mode: int = 0o644, owner: Owner = None) -> None:
    """Replace a file, and create its folder if it is missing.

    A new folder is private if the file is. A symbolic link at the path is replaced, not followed.
    Text that is not UTF-8 is escaped as Python does. Nobody else can read the file before it has
    its mode.

    Raises:
        OSError: From the file system; the old file stays.
        LookupError: The account or group does not exist; the old file stays.
    """
    private = mode & 0o077 == 0
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)
    handle, name = tempfile.mkstemp(prefix=temporary_prefix(), dir=path.parent)
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
    """Replace a file by a JSON document, as `write` does."""
    write(path, json.dumps(value, indent=1) + "\n", mode=mode, owner=owner)


def read_json(path: Path) -> Any:
    """Return a JSON document, or None if there is none that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def replace_link(path: Path, target: str) -> None:
    """Replace a symbolic link, or whatever is at its path."""
    new = path.with_name(f"{temporary_prefix()}{path.name}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)


def temporary_prefix() -> str:
    """Return the start of the names of this process's temporary files and folders."""
    return f"{PREFIX}{os.getpid()}-{process_liveness.start_ticks(os.getpid())}-"


def is_leftover(path: Path) -> bool:
    """Tell whether a killed program left this temporary file behind."""
    pid, _, remainder = path.name.removeprefix(PREFIX).partition("-")
    start = remainder.partition("-")[0]
    # Versions before 2026-11-26 named no process.
    return not (
        pid.isdigit() and start.isdigit() and process_liveness.is_alive(int(pid), int(start))
    )


def flush(path: Path) -> None:
    """Flush a file's text, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
