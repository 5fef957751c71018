"""Other Sparks of a deploy as real servers on loopback, with a store and a token each."""

import dataclasses
import hashlib
import http.client
import json
import threading
from pathlib import Path

from lockstep.onhost.core import layout
from lockstep.onhost.fetch import announced_fetches, content_for_peers, peer_client, peer_server

TOKEN = "t" * 43


class Spark:
    """One peer: `paths` is its root; content is put into its hub cache."""

    def __init__(self, root: Path, name: str, idle_s: float = 600.0) -> None:
        self.name = name
        self.paths = layout.Paths(root / name)
        self.hub = root / name / "hub"
        self.flat = root / name / "flat"
        self.blobs = self.hub / "models--org--model/blobs"
        for folder in (self.blobs, self.flat, announced_fetches.claims_folder(self.paths)):
            folder.mkdir(parents=True)
        self.offer()
        store = content_for_peers.PeerStore(
            self.hub, (self.flat,), peer_client.folder_of_offers(self.paths)
        )
        # The store must find new content at once.
        store._read = -1000.0
        self.server = peer_server.CopyServer(("127.0.0.1", 0), store, idle_s)
        self.port = self.server.server_address[1]
        self.requests: list[str] = []
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def offer(self, token: str = TOKEN, **expects: list[str]) -> None:
        """Write the offer of a deploy to this peer: its token, and the content it will fetch."""
        document = {"accepts": hashlib.sha256(token.encode()).hexdigest(), "expects": expects}
        path = peer_client.folder_of_offers(self.paths) / f"{token[:8]}.offer.json"
        path.write_text(json.dumps(document))

    def has(self, body: bytes, name: str | None = None) -> str:
        """Put content into the peer's cache, under its own name or a wrong one."""
        name = name or hashlib.sha256(body).hexdigest()
        (self.blobs / name).write_bytes(body)
        return name

    def as_peer(self, earlier: bool = False) -> peer_client.Peer:
        return peer_client.Peer(self.name, "127.0.0.1", self.port, earlier)

    def ask(self, method: str, path: str, token: str | None = TOKEN, **headers: str):
        """Send one request; returns status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            request_headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, headers=request_headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, dict(response.headers), body

    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait_for_end(self) -> None:
        self._thread.join(180)
        assert not self.alive()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def write_lease(paths: layout.Paths, *peers: peer_client.Peer) -> None:
    announced_fetches.claims_folder(paths).mkdir(parents=True, exist_ok=True)
    lease = {"token": TOKEN, "peers": [dataclasses.asdict(peer) for peer in peers]}
    (peer_client.folder_of_leases(paths) / "0.client.json").write_text(json.dumps(lease))
