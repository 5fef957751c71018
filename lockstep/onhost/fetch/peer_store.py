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
from typing import NamedTuple

from lockstep.onhost.fetch import claims, content

#: How far a fetch is, is counted anew after this: a walk of folders for each question costs much.
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
    """The folders, and what the programs that fill them say about what is to come.

    `hub` is the hub's cache and `flat` are folders of files, all named by hash; `folder` has offers
    and claims.
    """

    def __init__(self, hub: Path, flat: tuple[Path, ...], folder: Path) -> None:
        self._hub = hub
        self._flat = flat
        self._folder = folder
        self._lock = threading.Lock()
        self._read = 0.0
        self._whole: set[str] = set()
        self._partial: dict[str, int] = {}

    def path(self, name: str) -> Path | None:
        """The file with that content; None where it is not (yet) here."""
        # Always asked of the file system. An older listing lacks the last files of a fetch that
        # has just ended, and nothing would say any more that they were coming.
        places = (folder / name for folder in self._folders())
        return next((path for path in places if path.is_file()), None)

    def coming(self, name: str) -> Coming | None:
        """Whether content that is not here is on its way to this host.

        None is also the answer where it has arrived meanwhile: ask `path` once more.
        """
        held = [claim for claim in self._claims() if claims.alive(claim)]
        for claim in held:
            if name in _names(claim):
                return Coming("fetching", self._progress([claim]))
        begun = {claim.name for claim in self._claims()}
        for offer in self.offers():
            for claim_name, names in offer.expects.items():
                if name in names and claim_name not in begun:
                    # What is fetched before it shows that this host gets on.
                    return Coming("expected", self._progress(held))
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

    def _folders(self) -> list[Path]:
        return [*self._hub.glob("models--*/blobs"), *self._flat]

    def _progress(self, held: list[Path]) -> str:
        """Changes whenever a program that holds a claim gets on: bytes, or a sign of life."""
        with self._lock:
            self._refresh()
            names = [name for claim in held for name in _names(claim)]
            sizes = [self._partial.get(name, int(name in self._whole)) for name in names]
        beats = []
        for claim in held:
            with contextlib.suppress(OSError):
                beats.append(claim.stat().st_mtime_ns)
        return f"{sum(sizes)}-{max(beats)}" if beats else ""

    def _refresh(self) -> None:
        if time.monotonic() - self._read < _FRESH_S:
            return
        self._whole, self._partial = set(), {}
        for folder in self._folders():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    self._take(entry)
        self._read = time.monotonic()

    def _take(self, entry: os.DirEntry[str]) -> None:
        if content.NAME.fullmatch(entry.name):
            self._whole.add(entry.name)
        elif entry.name.endswith(content.PARTIAL):
            with contextlib.suppress(OSError):
                size = entry.stat(follow_symlinks=False).st_size
                self._partial[entry.name.removesuffix(content.PARTIAL)] = size


def _names(claim: Path) -> list[str]:
    try:
        return claim.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
