"""A host with the volume of an Open WebUI, a real SQLite database and a real restic."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from a_restic import open_cheaply
from local_server import Reply, serving
from onhost_fakes import FakeDocker, FakeSystemd

from lockstep.onhost.core import layout
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
