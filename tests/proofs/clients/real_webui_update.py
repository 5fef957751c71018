"""Two real versions of Open WebUI on one volume: a chat, an update, a return: the chat is there.

`make webui`. The programs that copy and return the data are those of a host; its systemd and Docker
are made up. The newer version migrates the database so that the older one does not start on it.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_webui import Spark, running
from example import HOSTS
from lab_servers import ask, free_port
from real_webui import EMAIL, PASSWORD, VERSION, install, start_webui, webui

from lockstep.inventory.settings import Settings
from lockstep.inventory.settings import WebUi as WebUiData
from lockstep.onhost.webui import data_copies, update

BEFORE = "0.11.4"
KILLS = 10
KEPT = {"before the update"}


class Site:
    """A host with both versions."""

    def __init__(self, spark: Spark, settings: Settings, programs: dict[str, Path]) -> None:
        self.spark = spark
        self.settings = settings
        self.programs = programs
        spark.url = f"http://127.0.0.1:{settings.webui.port}/health"

    def begin(self, version: str) -> None:
        """Do the unit's work before the program."""
        self.spark.unit.write_text(f"[Service]\nExecStart=docker run {version}\n")
        self.spark.begin(version)

    def serves(self, version: str, say: str = "") -> set[str]:
        """The chats that a version shows; it keeps one more before that, and ends well."""
        with webui(self.programs[version], self.settings, self.spark.place) as url:
            self.spark.ready(version)
            login = {"email": EMAIL, "password": PASSWORD}
            token = ask_webui(url, "/api/v1/auths/signin", login)["token"]
            if say:
                chat = {"title": say, "models": [], "messages": [], "history": {"messages": {}}}
                ask_webui(url, "/api/v1/chats/new", {"chat": chat}, token)
            return {entry["title"] for entry in ask_webui(url, "/api/v1/chats/", token=token)}

    def start_and_kill(self, version: str, after_s: float) -> None:
        """Start, and kill the program so long after it has begun."""
        with start_webui(self.programs[version], self.settings, self.spark.place) as (_, process):
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.kill()


def ask_webui(url: str, path: str, body: object = None, token: str = "") -> Any:
    """The JSON that Open WebUI answers."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def is_refused(site: Site, version: str) -> bool:
    """Tell whether a version refuses to begin with the present data."""
    with start_webui(site.programs[version], site.settings, site.spark.place) as (url, process):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                if ask(f"{url}/health").status == 200:
                    return False
            time.sleep(0.5)
    return True


def main() -> int:
    """Prove all in a folder that is gone afterwards."""
    port = free_port()
    settings = replace(HOSTS["spark"], webui=WebUiData(port=port))
    with (
        tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
        running(Path(name), patch) as spark,
    ):
        programs = {
            version: install(Path(name) / version, version) for version in (BEFORE, VERSION)
        }
        site = Site(spark, settings, programs)
        site.begin(BEFORE)
        assert site.serves(BEFORE, say="before the update") == KEPT

        site.begin(VERSION)
        began = time.monotonic()
        assert site.serves(VERSION, say="after it") == {*KEPT, "after it"}
        took = time.monotonic() - began
        print(f"updated from {BEFORE} to {VERSION} in {took:.0f} s: the chat is there")
        print(
            f"{BEFORE} on the data of {VERSION}: {'ends' if is_refused(site, BEFORE) else 'starts'}"
        )
        update.select_copy_for_image(
            spark.paths, BEFORE, data_copies.complete_copies(spark.paths)[0].number
        )
        site.begin(BEFORE)
        assert site.serves(BEFORE) == KEPT
        print(f"rolled back to {BEFORE} with its data: the chat is there")

        for number in range(KILLS):
            delay_s = took * (number + 0.5) / KILLS
            site.begin(VERSION)
            site.start_and_kill(VERSION, delay_s)
            spark.end("signal")
            site.begin(BEFORE)
            assert site.serves(BEFORE) == KEPT, delay_s
            print(
                f"killed {delay_s:.1f} s after the start of {VERSION}: {BEFORE} and the chat return"
            )
        site.begin(VERSION)
        assert site.serves(VERSION) == KEPT
    return 0


if __name__ == "__main__":
    sys.exit(main())
