"""The content that a host can give to its peers: files named by their hash in known folders."""

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

from lockstep.onhost.fetch import announced_fetches, blob_files

#: Seconds until a fetch's progress is counted again: walking folders for each question is slow.
_FRESH_S = 0.5


class ComingContent(NamedTuple):
    """Content that this host fetches ("fetching") or is about to ("expected")."""

    state: str
    progress: str


@dataclass(frozen=True)
class StoreOffer:
    """The offer of one deploy: the hash of its token, and by claim what this host will fetch."""

    accepts: str
    expects: dict[str, frozenset[str]]


class PeerStore:
    """The folders of content, and the claims of content to come by the programs that fill them.

    `hub` is the hub's cache and `flat` are folders of files, all named by hash; `folder` has offers
    and claims.
    """

    def __init__(self, hub: Path, flat: tuple[Path, ...], folder: Path) -> None:
        self._hub = hub
        self._flat = flat
        self._folder = folder
        self._lock = threading.Lock()
        self._read = 0.0
        self._is_whole: set[str] = set()
        self._partial: dict[str, int] = {}

    def path(self, name: str) -> Path | None:
        """Return the file with that content; None if it is not (yet) here."""
        # Always read from the file system: an older listing lacks the last files of a fetch that
        # has just ended, and nothing would show any more that they were coming.
        places = (folder / name for folder in self._folders())
        return next((path for path in places if path.is_file()), None)

    def coming_content(self, name: str) -> ComingContent | None:
        """Return the state of content that is on its way to this host, else None.

        None is also the answer if it has arrived meanwhile: ask `path` once more.
        """
        paths = [claim for claim in self._claims() if announced_fetches.is_held(claim)]
        for claim in paths:
            if name in _claimed_names(claim):
                return ComingContent("fetching", self._progress_mark([claim]))
        names_begun = {claim.name for claim in self._claims()}
        for offer in self.deploy_offers():
            for claim_name, names in offer.expects.items():
                if name in names and claim_name not in names_begun:
                    # Progress of earlier fetches shows that this host moves on.
                    return ComingContent("expected", self._progress_mark(paths))
        return None

    def has_running_fetch(self) -> bool:
        """Tell whether this host itself is fetching something."""
        return any(map(announced_fetches.is_held, self._claims()))

    def hash_of_accepted_token(self, token: str) -> str | None:
        """Return the hash of a token if a present deploy gave it out; None for any other token."""
        token_hash = sha256(token.encode()).hexdigest()
        known_hashes = [offer.accepts for offer in self.deploy_offers()]
        return (
            token_hash
            if any([compare_digest(token_hash, known_hash) for known_hash in known_hashes])
            else None
        )

    def deploy_offers(self) -> list[StoreOffer]:
        """Return the offers of the present deploys."""
        offers_read = []
        for path in self._folder.glob("*.offer.json"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                data = json.loads(path.read_text(encoding="utf-8"))
                expects = {claim: frozenset(names) for claim, names in data["expects"].items()}
                offers_read.append(StoreOffer(str(data["accepts"]), expects))
        return offers_read

    def _claims(self) -> list[Path]:
        return sorted((self._folder / "claims").glob("*"))

    def _folders(self) -> list[Path]:
        return [*self._hub.glob("models--*/blobs"), *self._flat]

    def _progress_mark(self, paths: list[Path]) -> str:
        """Return a text that changes when a claim's holder moves on: bytes, or a sign of life."""
        with self._lock:
            self._rescan_content_folders()
            names = [name for claim in paths for name in _claimed_names(claim)]
            sizes = [self._partial.get(name, int(name in self._is_whole)) for name in names]
        beats = []
        for claim in paths:
            with contextlib.suppress(OSError):
                beats.append(claim.stat().st_mtime_ns)
        return f"{sum(sizes)}-{max(beats)}" if beats else ""

    def _rescan_content_folders(self) -> None:
        if time.monotonic() - self._read < _FRESH_S:
            return
        self._is_whole, self._partial = set(), {}
        for folder in self._folders():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    self._note_file_size(entry)
        self._read = time.monotonic()

    def _note_file_size(self, entry: os.DirEntry[str]) -> None:
        if blob_files.NAME.fullmatch(entry.name):
            self._is_whole.add(entry.name)
        elif entry.name.endswith(blob_files.PARTIAL):
            with contextlib.suppress(OSError):
                size = entry.stat(follow_symlinks=False).st_size
                self._partial[entry.name.removesuffix(blob_files.PARTIAL)] = size


def _claimed_names(claim: Path) -> list[str]:
    try:
        return claim.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
