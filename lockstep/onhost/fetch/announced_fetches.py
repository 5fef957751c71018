"""Claims of content that this host is fetching now, for peers to wait for it.

A claim is a file with one name of content per line, locked by the program that fetches. The lock
ends with the program however it ends, so a claim never outlives the work.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lockstep.onhost.core import file_lock, layout
from lockstep.onhost.fetch import peer_client


def claims_folder(paths: layout.Paths) -> Path:
    """Return the folder of claims; `sharing open` makes it, so without sharing it is absent."""
    return peer_client.folder_of_offers(paths) / "claims"


class Claim:
    """A held claim: more content can be claimed, and the claim can be shown to be alive."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def add(self, names: Iterable[str]) -> None:
        """Claim more content."""
        if self._path is not None:
            with self._path.open("a", encoding="ascii") as file:
                file.write("".join(f"{name}\n" for name in names))

    def show_sign_of_life(self) -> None:
        """Show that the work goes on although no byte arrives (files are being checked)."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.utime(self._path)


@contextlib.contextmanager
def hold_claim(paths: layout.Paths, name: str, names: Iterable[str] = ()) -> Iterator[Claim]:
    """Claim content under the claim's `name` until the block ends; do nothing if nobody shares."""
    path = claims_folder(paths) / name
    if not path.parent.is_dir():
        yield Claim(None)
        return
    new = path.with_name(f".{name}.{os.getpid()}")
    with file_lock.open_file(new) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Readable, because the peer server has an account of its own. The folders keep out other
        # accounts, which could lock the claim as well; the file is new, so nobody was before us.
        os.fchmod(file.fileno(), 0o644)
        Claim(new).add(names)
        # A claim appears only when it is locked and complete.
        new.replace(path)
        yield Claim(path)


def is_held(path: Path) -> bool:
    """Tell whether a program holds this claim."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
