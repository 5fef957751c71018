"""A host with the volume of an Open WebUI, a real SQLite database and a real restic."""

import base64
import hashlib
import json
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305
from local_server import Reply, serving
from onhost_fakes import FakeDocker, FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.records.restic_client import ResticRepository
from lockstep.onhost.webui import update

UNIT, VOLUME, OLD, NEW = "open-webui.service", "open-webui", "i@sha256:1", "i@sha256:2"


class Spark:
    """A host with the volume of an Open WebUI; each start runs its unit's text."""

    def __init__(self, root: Path, url: str) -> None:
        self.paths = layout.Paths(root)
        self.url = url
        self.place = root / "volume/_data"
        self.place.mkdir(parents=True)
        self.unit = root / "etc/systemd/system" / UNIT
        self.unit.parent.mkdir(parents=True)

    def chat(self, title: str, at: float = 0.0) -> None:
        with closing(sqlite3.connect(self.place / "webui.db")) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS chat (title TEXT, updated_at REAL)")
            db.execute("INSERT INTO chat VALUES (?, ?)", (title, at))

    @property
    def chats(self) -> list[str]:
        with closing(sqlite3.connect(self.place / "webui.db")) as db:
            return [row[0] for row in db.execute("SELECT title FROM chat")]

    def begin(self, image: str) -> None:
        update.prepare_data_for_image(self.paths, UNIT, VOLUME, image)

    def ready(self, image: str) -> None:
        update.accept_when_serving(self.paths, UNIT, VOLUME, image, self.url, lambda: None)

    def end(self, result: str) -> None:
        update.undo_failed_update(self.paths, UNIT, result)

    def runs(self, image: str) -> None:
        self.unit.write_text(text(image))
        self.begin(image)
        self.ready(image)

    def fails(self, image: str) -> None:
        """Make a start of `image` write into the database and then end."""
        self.unit.write_text(text(image))
        self.begin(image)
        self.chat(f"half a migration of {image}")
        self.end("exit-code")

    def backs_up(self, *to: str) -> None:
        """Write the files of a deploy with `backup`."""
        self.paths.backup.parent.mkdir(parents=True, exist_ok=True)
        self.paths.state.mkdir(parents=True, exist_ok=True)
        keep = {"daily": 7, "weekly": 4, "monthly": 6}
        text = {"to": to, "keep": keep, "unit": UNIT, "volume": VOLUME}
        self.paths.backup.write_text(json.dumps(text))


def text(image: str) -> str:
    return f"[Service]\nExecStart=docker run {image}\n"


@contextmanager
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    """A running host, with a stand-in of systemd and of Docker."""
    with serving({"/": Reply(b"{}")}) as server:
        FakeSystemd(tmp_path / "systemd", monkeypatch)
        open_cheaply(monkeypatch)
        spark = Spark(tmp_path / "root", server.url)
        spark.paths.docker_socket.parent.mkdir(parents=True)
        docker = FakeDocker(spark.paths.docker_socket)
        docker.containers["open-webui"] = OLD
        docker.answers["/volumes/open-webui"] = {"Mountpoint": "/volume/_data"}
        try:
            yield spark
        finally:
            docker.close()


#: Kinds of repositories of which restic itself has made one in this process.
_made_by_restic: set[bool] = set()


def open_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every repository from now on cheap to make and to open.

    restic itself makes the first of each kind in this process. Such a one takes half a second of
    processor time whenever it is opened (2026-11-30), so a cheap one takes its place.
    """
    run = ResticRepository._run

    def cheap(own: ResticRepository, *words: str, more: Mapping[str, str] | None = None) -> str:
        place, is_copy = Path(own.place), more is not None
        if words[0] != "init":
            return run(own, *words, more=more)
        if is_copy not in _made_by_restic:
            run(own, *words, more=more)
            _made_by_restic.add(is_copy)
            shutil.rmtree(place)
        try:
            for name in ("data", "index", "keys", "locks", "snapshots"):
                (place / name).mkdir(parents=True)
        except OSError:
            return run(own, *words, more=more)
        _make(place, own.password.read_bytes().rstrip())
        return ""

    monkeypatch.setattr(ResticRepository, "_run", cheap)


def _make(place: Path, password: bytes) -> None:
    """Write settings and the only key, of the least cost that restic accepts."""
    master, salt, cost = secrets.token_bytes(64), secrets.token_bytes(64), {"N": 2, "r": 1, "p": 1}
    encrypt, k, r = (_base64(part) for part in (master[:32], master[32:48], master[48:]))
    of_password = hashlib.scrypt(password, salt=salt, n=2, r=1, p=1, dklen=64)
    text = _seal(of_password, {"mac": {"k": k, "r": r}, "encrypt": encrypt})
    key = {"kdf": "scrypt", **cost, "salt": _base64(salt), "data": _base64(text)}
    whole = json.dumps({"created": "2026-11-01T00:00:00Z", **key}).encode()
    (place / "keys" / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    settings = {"version": 2, "id": secrets.token_hex(32), "chunker_polynomial": "3da3358b4dc173"}
    (place / "config").write_bytes(_seal(master, settings))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _seal(key: bytes, document: object) -> bytes:
    """Encrypt by AES-256 as a stream, and sign by Poly1305-AES."""
    nonce = secrets.token_bytes(16)
    stream = Cipher(algorithms.AES(key[:32]), modes.CTR(nonce)).encryptor()
    text = stream.update(json.dumps(document).encode())
    once = Cipher(algorithms.AES(key[32:48]), modes.ECB()).encryptor().update(nonce)
    return nonce + text + Poly1305.generate_tag(key[48:] + once, text)
