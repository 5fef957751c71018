"""Copies of content from the other Sparks of a deploy, by hash, over the fast link.

Content of a peer is copied, and content that an earlier peer is fetching is waited for. The caller
fetches the rest from its origin. No behaviour of a peer is a failure: a peer that is gone, slow to
answer or wrong is left out, and a copy resumes from the byte where it ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple

from lockstep.onhost.core import address_text, event_lines, http_client, layout
from lockstep.onhost.fetch import blob_files
from lockstep.onhost.records import json_records

#: A link that delivers nothing for so long is gone; peers are one hop away.
SILENCE_S = 20.0
POLL_S = 0.5
#: Seconds until an unreachable peer is asked again; three times in all.
RETRY_S = 15.0
STRIKES = 3
#: Seconds that an earlier peer may fetch without a byte of progress before we fetch ourselves.
PATIENCE_S = 180.0
#: Seconds that a peer may take to begin: hosts of one deploy start each step together.
BEGIN_S = 60.0
_CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True)
class Peer:
    """Another Spark of this deploy; an `earlier` one is first to fetch content that nobody has."""

    name: str
    address: str
    port: int
    earlier: bool


@dataclass(frozen=True)
class Lease:
    """The permission of one deploy to copy: its peers, and the token that they accept."""

    token: str
    peers: tuple[Peer, ...]


def folder_of_leases(paths: layout.Paths) -> Path:
    """Return the folder of leases, for root and for the account that fetches."""
    return paths.run / "peers"


def folder_of_offers(paths: layout.Paths) -> Path:
    """Return the folder of the deploys' offers and of claims, which the peer server reads."""
    return folder_of_leases(paths) / "offers"


def newest_lease(paths: layout.Paths, lease_id: str = "*") -> Lease | None:
    """Return the newest lease of this host; None if nothing is shared or it may not be read."""
    try:
        leases = folder_of_leases(paths).glob(f"{lease_id}.client.json")
        files = sorted(leases, key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return json_records.load(Lease, files[-1]) if files else None


class PeerAnswer(NamedTuple):
    """A peer's answer about content: "here", "fetching", "expected", "no" or "gone"."""

    state: str
    progress: str = ""
    size: int = 0


class Copier:
    """A copier of content from peers; several threads may use it at once."""

    def __init__(self, lease: Lease | None, say: Callable[[str], None] = event_lines.say) -> None:
        self._lease = lease
        self._say = say
        self._lock = threading.Lock()
        self._refusals: set[tuple[str, str]] = set()
        self._strikes: Counter[str] = Counter()
        self._silent_since: dict[str, float] = {}
        self._waits: dict[str, tuple[tuple[str, str], float]] = {}
        self._impatient: set[str] = set()
        self._waiting: Counter[str] = Counter()
        self._copying: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def copy_from_peer(
        self,
        name: str,
        size: int | None,
        target: Path,
        proves: Callable[[Path], bool] | None = None,
    ) -> bool:
        """Put content into `target`, checked against its name; return False if no peer gives it.

        Args:
            name: Hash of the content.
            size: Bytes, None if nobody knows.
            target: Full path; an unfinished part is in `target`.incomplete.
            proves: Tells whether a file is the content `name`, if that is not the hash of its
                bytes.
        """
        while self._lease is not None:
            answers = {peer: self._ask(peer, name) for peer in self._peers_to_ask(name)}
            having_peers = [peer for peer, answer in answers.items() if answer.state == "here"]
            if having_peers:
                # Different files come from different peers, if several have them.
                peer = having_peers[int(name[:8], 16) % len(having_peers)]
                if self._copy(peer, name, size or answers[peer].size, target, proves):
                    return True
                continue
            coming = [
                peer
                for peer, answer in answers.items()
                if answer.state in ("fetching", "expected") and self._is_worth_waiting(peer, answer)
            ]
            if not coming:
                return False
            self._pause_for_peer(coming[0])
        return False

    def waiting_note(self) -> str:
        """Return the end of a line of progress: the peers that this host waits for."""
        names = self._peer_names_text(self._waiting)
        return f", waiting for {names}" if names else ""

    def source_text(self, origin: str) -> str:
        """Return the present source of content for people: peers, else the origin."""
        if names := self._peer_names_text(self._copying):
            return f"from {names}"
        return self.waiting_note().removeprefix(", ") or f"from {origin}"

    def _peer_names_text(self, counter: Counter[str]) -> str:
        with self._lock:
            return " and ".join(sorted(name for name, count in counter.items() if count))

    def report_copies(self, subject: str) -> None:
        """Print once, at the end, how much came from which peer."""
        for name, size in sorted(self.bytes.items()):
            self._say(f"{subject}: {size / 1e6:.1f} MB copied from {name}")

    def _peers_to_ask(self, name: str) -> list[Peer]:
        assert self._lease is not None
        now = time.monotonic()
        with self._lock:
            return [
                peer
                for peer in self._lease.peers
                if (peer.name, name) not in self._refusals
                and self._strikes[peer.name] < STRIKES
                and now - self._silent_since.get(peer.name, -RETRY_S) >= RETRY_S
            ]

    def _pause_for_peer(self, peer: Peer) -> None:
        with self._count_peer_in(self._waiting, peer):
            time.sleep(POLL_S)

    @contextlib.contextmanager
    def _count_peer_in(self, counter: Counter[str], peer: Peer) -> Iterator[None]:
        with self._lock:
            counter[peer.name] += 1
        try:
            yield
        finally:
            with self._lock:
                counter[peer.name] -= 1

    def _is_worth_waiting(self, peer: Peer, answer: PeerAnswer) -> bool:
        """Tell whether an earlier peer still moves; after a stop it is never waited for again."""
        if not peer.earlier or peer.name in self._impatient:
            return False
        now = time.monotonic()
        state_now = (answer.state, answer.progress)
        with self._lock:
            earlier_state, since = self._waits.get(peer.name, (None, now))
            if earlier_state != state_now:
                self._waits[peer.name] = (state_now, now)
                return True
            if now - since < (BEGIN_S if answer.state == "expected" else PATIENCE_S):
                return True
            self._impatient.add(peer.name)
        self._say(f"{peer.name} does not go on with what it was to fetch; not waiting for it")
        return False

    def _ask(self, peer: Peer, name: str) -> PeerAnswer:
        assert self._lease is not None
        try:
            with _ask_peer(self._lease, peer, "HEAD", f"/content/{name}") as response:
                response.read()
        except http_client.FAULTS:
            self._count_failure(peer)
            return PeerAnswer("gone")
        if response.status == 200:
            return PeerAnswer("here", size=int(response.headers.get("Content-Length") or 0))
        if response.status == 202:
            state = response.headers.get("X-Lockstep-State", "")
            return PeerAnswer(state, response.headers.get("X-Lockstep-Progress", ""))
        return PeerAnswer("no")

    def _copy(
        self, peer: Peer, name: str, size: int, target: Path, proves: Callable[[Path], bool] | None
    ) -> bool:
        partial = blob_files.partial_path(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._count_peer_in(self._copying, peer):
                is_same = self._transfer(peer, name, size, partial)
        except (ConnectionError, TimeoutError, HTTPException) as error:
            self._count_failure(peer)
            self._say(f"copy from {peer.name} broke off ({error or type(error).__name__})")
            return False
        if not (proves(partial) if proves else is_same):
            partial.unlink(missing_ok=True)
            with self._lock:
                self._refusals.add((peer.name, name))
            self._say(f"{name[:12]} from {peer.name} is not what its hash says; not used")
            return False
        partial.replace(target)
        return True

    def _transfer(self, peer: Peer, name: str, size: int, partial: Path) -> bool:
        """Append the missing bytes; tell whether the whole has the hash `name`."""
        digest = blob_files.hasher(name, size)
        have = blob_files.add_file_to_hash(partial, digest) if partial.exists() else 0
        if have == size and digest.hexdigest() == name:
            return True
        if have >= size:
            partial.unlink(missing_ok=True)
            digest, have = blob_files.hasher(name, size), 0
        assert self._lease is not None
        part = {"Range": f"bytes={have}-"} if have else {}
        with _ask_peer(self._lease, peer, "GET", f"/content/{name}", part) as response:
            if response.status not in (200, 206):
                raise ConnectionError(f"HTTP {response.status}")
            if have and response.status == 200:
                partial.unlink()
                digest, have = blob_files.hasher(name, size), 0
            buffer = memoryview(bytearray(_CHUNK))
            with partial.open("ab") as file:
                while count := http_client.call_with_network_errors(response.readinto, buffer):
                    file.write(buffer[:count])
                    digest.update(buffer[:count])
                    have += count
                    with self._lock:
                        self.bytes[peer.name] += count
                file.flush()
                os.fsync(file.fileno())
                blob_files.drop_page_cache(file.fileno())
        if have < size:
            raise ConnectionError(f"at {have} of {size} bytes")
        return digest.hexdigest() == name

    def _count_failure(self, peer: Peer) -> None:
        with self._lock:
            self._strikes[peer.name] += 1
            self._silent_since[peer.name] = time.monotonic()


def announce_end_to_peers(lease: Lease) -> None:
    """Tell every peer that this deploy is over; a peer that does not answer ends on its own."""
    for peer in lease.peers:
        with (
            contextlib.suppress(*http_client.FAULTS),
            _ask_peer(lease, peer, "POST", "/end", silence_s=5) as response,
        ):
            response.read()


@contextlib.contextmanager
def _ask_peer(
    lease: Lease,
    peer: Peer,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    silence_s: float = SILENCE_S,
) -> Iterator[HTTPResponse]:
    """Yield a peer's answer, without a proxy: peers are on a link of their own."""
    url = address_text.url(peer.address, peer.port) + path
    all_headers = {"Authorization": f"Bearer {lease.token}", **(headers or {})}
    answer = http_client.open_answer(url, silence_s, method, headers=all_headers)
    with contextlib.ExitStack() as stack:
        yield http_client.call_with_network_errors(stack.enter_context, answer)
