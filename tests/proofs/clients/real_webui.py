"""The real Open WebUI before the gateway, in Chromium, and two versions of it on one volume.

`make webui`. Gateway and switch, and the programs that copy and return the data, are those of a
host; its systemd, Docker and engines are made up. Open WebUI is its package with its own list for
small machines: no torch, no vector store. The newer version migrates the database so that the older
one does not start on it.
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_switching_spark import UNITS, SwitchingSpark
from a_webui import Spark, running
from browser import browser
from example import HOSTS, bound_models, pins
from lab_servers import ask, free_port, until
from local_server import Reply, SeenRequest, as_json, serving
from onhost_fakes import REPOSITORY
from webui_page import WebUI

from lockstep.inventory.settings import Gateway as GatewayData
from lockstep.inventory.settings import Settings
from lockstep.inventory.settings import WebUi as WebUiData
from lockstep.onhost.gateway.configuration import GatewayConfiguration, ListenAddress
from lockstep.onhost.records import switch_history
from lockstep.onhost.webui import data_copies, update
from lockstep.units.model_units import webui_command
from lockstep.units.model_variants import variants

BEFORE, VERSION = "0.11.4", "0.12.4"
KILLS = 10
KEPT = {"before the update"}
UV = Path(sys.executable).with_name("uv")
EMAIL, PASSWORD = "admin@example.org", "the word of the day"
LIMIT_S = 180
_GATEWAY = (
    "import sys; sys.path.insert(0, {repository!r}); from pathlib import Path; "
    "from lockstep.onhost.core import layout; from lockstep.onhost.gateway import "
    "switch_client, server; "
    "switch_client.request_switch.__defaults__ = (Path({socket!r}),); "
    "server.main([], layout.Paths(Path({root!r})), Path({root!r}) / 'usage.json')"
)


def install(folder: Path, version: str = VERSION) -> Path:
    """Make a new environment with Open WebUI; returns its program."""
    python = folder / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    pip = [UV, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*pip, "--no-deps", f"open-webui=={version}"], check=True)
    [target_path] = folder.glob("lib/*/site-packages/requirements-slim.txt")
    subprocess.run([*pip, "-r", target_path], check=True)
    return folder / "bin" / "open-webui"


@contextlib.contextmanager
def start_webui(
    program: Path, settings: Settings, folder: Path
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start Open WebUI; its variables are those of the unit, its data in `folder`.

    Returns address and process. It need not answer yet.
    """
    models = bound_models(settings)
    lock_pins = pins(settings, models)
    model_variants = variants(settings, models, lock_pins, engine_id="")
    words = itertools.pairwise(webui_command(settings, model_variants, lock_pins))
    environment = dict(word.split("=", 1) for option, word in words if option == "--env")
    environment |= {"WEBUI_ADMIN_EMAIL": EMAIL, "WEBUI_ADMIN_PASSWORD": PASSWORD}
    environment |= {"WEBUI_SECRET_KEY": "a key", "DATA_DIR": str(folder), "HOME": str(folder)}
    environment |= {"PATH": os.environ["PATH"], "USE_SLIM_DOCKER": "true"}
    argv = [program, "serve", "--host", environment["HOST"], "--port", environment["PORT"]]
    with (folder / "log").open("a") as log:
        server = subprocess.Popen(argv, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield f"http://{environment['HOST']}:{environment['PORT']}", server
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def webui(program: Path, settings: Settings, folder: Path) -> Iterator[str]:
    """Open WebUI that answers; gives its address."""
    journal = folder / "log"
    with start_webui(program, settings, folder) as (url, server):

        def answers() -> bool:
            assert server.poll() is None, journal.read_text()[-4000:]
            return ask(f"{url}/health").status == 200

        until(answers, f"Open WebUI answers: {journal}", LIMIT_S)
        yield url


def engine(request: SeenRequest) -> Reply:
    """An engine that answers with the name of the requested model."""
    question = json.loads(request.body)
    text = f"Hello from {question['model']}."
    if not question.get("stream"):
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        return as_json({"choices": [{"index": 0, "message": message}], "usage": usage})
    parts = [{"choices": [{"index": 0, "delta": {"content": f"{word} "}}]} for word in text.split()]
    lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
    body = "".join([*lines, "data: [DONE]\n\n"]).encode()
    return Reply(body, headers={"Content-Type": "text/event-stream"})


@contextlib.contextmanager
def gateway(spark: SwitchingSpark, data: GatewayConfiguration) -> Iterator[None]:
    """The gateway as a process that is ready."""
    spark.paths.gateway.write_text(json.dumps(asdict(data)))
    place, root = spark.paths.root.parent / "notify", str(spark.paths.root)
    code = _GATEWAY.format(repository=str(REPOSITORY), socket=str(spark.socket), root=root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(place))
        notify.settimeout(LIMIT_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(place)}
        with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
            try:
                assert notify.recv(64) == b"READY=1"
                yield
            finally:
                process.kill()
                place.unlink()


def drive(url: str, spark: SwitchingSpark, data: GatewayConfiguration) -> None:
    """Sign in and list; use the hot model, a cold one that is refused, and one switched to."""
    with browser() as chromium:
        with gateway(spark, data):
            somebody = WebUI(chromium.page(url), EMAIL, PASSWORD)
            print("models:", *somebody.models(), "· chosen:", somebody.chosen_model)
            assert somebody.chosen_model == "auto"
            somebody.new_chat("mistral")
            somebody.say("Say hello.")
            somebody.reads("Hello from mistral.")
            somebody.new_chat("qwen")
            somebody.say("Say hello.")
            somebody.reads("qwen is cold; mistral is hot")
            print("qwen, which is cold, is refused with what is hot")
        with gateway(spark, replace(data, swap_on_request=True, least_hot_s=0)):
            somebody.new_chat("qwen")
            began = time.monotonic()
            somebody.say("Say hello.")
            somebody.reads("Hello from qwen.", LIMIT_S)
            print(f"qwen is switched to and answers after {time.monotonic() - began:.1f} s")
    assert [record.model for record in switch_history.load(spark.paths)] == ["qwen"]
    assert spark.hot == ["qwen"]


def prove_with_browser() -> None:
    """Use Open WebUI in Chromium, in a folder that is gone afterwards."""
    settings = replace(
        HOSTS["spark"], gateway=GatewayData(port=free_port()), webui=WebUiData(port=free_port())
    )
    model_list = as_json({"object": "list", "data": []})
    answers = {"/health": as_json({}), "/v1/models": model_list, "/v1/chat/completions": engine}
    with (
        tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(SwitchingSpark(Path(name), patch)) as spark,
        serving(answers) as server,
    ):
        for model in UNITS:
            spark.tell(model, served_name=model, url=server.url, engine_url=server.url)
        folder = Path(name) / "webui"
        began = time.monotonic()
        program = install(folder / "venv")
        size = sum(path.lstat().st_size for path in (folder / "venv").rglob("*"))
        print(f"installed in {time.monotonic() - began:.0f} s, {size / 1e6:.0f} MB")
        began = time.monotonic()
        (folder / "data").mkdir()
        with webui(program, settings, folder / "data") as url:
            print(f"Open WebUI {VERSION} answers after {time.monotonic() - began:.0f} s")
            listener = ListenAddress("local", "127.0.0.1", settings.gateway.port)
            drive(url, spark, GatewayConfiguration("spark1", (listener,)))


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


def prove_updates() -> None:
    """A chat, an update, a return, and updates that are killed."""
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


if __name__ == "__main__":
    prove_with_browser()
    prove_updates()
