"""What a host has to give to its peers: files named by their hash in a few known folders."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lockstep.onhost import claims, content
else:
    import claims
    import content

#: What is new in a folder is seen after this; a miss costs no walk in between.
_FRESH_S = 0.5


class Coming(NamedTuple):
    """Content that this host fetches ("fetching") or is about to ("expected")."""

    state: str
    progress: str


@dataclass(frozen=True)
class Offer:
    """What one deploy said: the hash of its token, and by claim what this host will fetch."""

    accepts: str
    expects: dict[str, frozenset[str]]


class Store:
    """The folders, read again when something is asked for that was not there before.

    Args:
        hub: The hub's cache, whose blobs are named by hash.
        flat: Folders of files named by hash.
        folder: Where offers and claims are.
    """

    def __init__(self, hub: Path, flat: tuple[Path, ...], folder: Path) -> None:
        self._hub = hub
        self._flat = flat
        self._folder = folder
        self._lock = threading.Lock()
        self._read = 0.0
        self._whole: dict[str, str] = {}
        self._partial: dict[str, int] = {}

    def path(self, name: str) -> Path | None:
        """The file with that content; None where it is not (yet) here."""
        with self._lock:
            if name not in self._whole or not os.path.exists(self._whole[name]):  # noqa: PTH110
                self._refresh()
            found = self._whole.get(name)
        return Path(found) if found else None

    def coming(self, name: str) -> Coming | None:
        """Whether content that is not here is on its way to this host."""
        for claim in self._claims():
            if claims.alive(claim) and name in _names(claim):
                return Coming("fetching", self._progress(claim))
        begun = {claim.name for claim in self._claims()}
        for offer in self.offers():
            for claim_name, names in offer.expects.items():
                if name in names and claim_name not in begun:
                    return Coming("expected", "")
        return None

    def busy(self) -> bool:
        """Whether this host itself is fetching something."""
        return any(map(claims.alive, self._claims()))

    def accepts(self, token: str) -> str | None:
        """The hash of a token that a deploy of now gave out; None for any other."""
        asked = sha256(token.encode()).hexdigest()
        known = [offer.accepts for offer in self.offers()]
        return asked if any([compare_digest(asked, each) for each in known]) else None

    def offers(self) -> list[Offer]:
        """What the deploys of now said."""
        found = []
        for path in self._folder.glob("*.offer.json"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                data = json.loads(path.read_text(encoding="utf-8"))
                expects = {claim: frozenset(names) for claim, names in data["expects"].items()}
                found.append(Offer(str(data["accepts"]), expects))
        return found

    def _claims(self) -> list[Path]:
        return sorted((self._folder / "claims").glob("*"))

    def _progress(self, claim: Path) -> str:
        """Changes whenever the program that holds the claim gets on: bytes, or a sign of life."""
        with self._lock:
            self._refresh()
            sizes = [self._partial.get(name, int(name in self._whole)) for name in _names(claim)]
        with contextlib.suppress(OSError):
            return f"{sum(sizes)}-{claim.stat().st_mtime_ns}"
        return ""

    def _refresh(self) -> None:
        if time.monotonic() - self._read < _FRESH_S:
            return
        self._whole, self._partial = {}, {}
        folders = [*self._hub.glob("models--*/blobs"), *self._flat]
        for folder in folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    self._take(entry)
        self._read = time.monotonic()

    def _take(self, entry: os.DirEntry[str]) -> None:
        if content.NAME.fullmatch(entry.name):
            self._whole[entry.name] = entry.path
        elif entry.name.endswith(content.PARTIAL):
            with contextlib.suppress(OSError):
                size = entry.stat(follow_symlinks=False).st_size
                self._partial[entry.name.removesuffix(content.PARTIAL)] = size


def _names(claim: Path) -> list[str]:
    try:
        return claim.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
