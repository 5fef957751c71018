"""Files of an owner's own on a host, which the deploy treats as it does those of Lockstep."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import SYSTEMD, Check, ManagedFile
from lockstep.inventory.settings import Settings

_MOST_BYTES = 1024 * 1024
_UNITS = (".service", ".timer", ".socket", ".path", ".mount")


def extra_files(settings: Settings, folder: Path, where: str) -> tuple[ManagedFile, ...]:
    """Return the files of `extra_files`, read from the owner's folder.

    An executable one is executable there. Raises InventoryError, with `where`, for one that cannot
    be read as text, or is larger than 1 MiB.
    """
    return tuple(
        _managed_file(path, folder / source, where) for path, source in settings.extra_files.items()
    )


def _managed_file(path: str, source: Path, where: str) -> ManagedFile:
    try:
        content = source.read_bytes()
        text = content.decode()
        executable = source.stat().st_mode & 0o100
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(path, where, f"{source}: {error}", "a file with text, in UTF-8") from error
    if len(content) > _MOST_BYTES:
        raise _refusal(path, where, f"{source}: {len(content)} bytes", "1 MiB at most")
    mode = "0755" if executable else "0644"
    return ManagedFile(path, text, mode=mode, check=_check(PurePosixPath(path)), stage="switch")


def _refusal(path: str, where: str, found: str, allowed: str) -> InventoryError:
    summary = f"extra_files: {path} cannot be written"
    return InventoryError(summary, where=where, found=found, allowed=allowed)


def _check(path: PurePosixPath) -> Check | None:
    if str(path.parent) == SYSTEMD and path.suffix in _UNITS:
        return "unit"
    if str(path.parent) == "/etc/sudoers.d":
        return "sudoers"
    return "json" if path.suffix == ".json" else None
