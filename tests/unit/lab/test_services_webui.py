"""The stand-in of Open WebUI: accounts, settings that persist, models, and chats in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Chromium, browser, started
from fork import Fork
from lab_servers import ask, free_port, until
from local_server import LocalServer, Reply, Seen, as_json, serving
from webui_page import WebUI

pytestmark = pytest.mark.slow

ADMIN = {"email": "admin@lab", "password": "a password"}
GIVEN = {"WEBUI_ADMIN_EMAIL": ADMIN["email"], "WEBUI_ADMIN_PASSWORD": ADMIN["password"]}
COLD = "mistral is cold: qwen is hot"


@contextlib.contextmanager
def webui(tmp_path: Path, **environment: str) -> Iterator[str]:
    port = free_port()
    info = tmp_path / "site" / "open_webui-0.12.4.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: open-webui\nVersion: 0.12.4\n")
    places = {
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "DATA_DIR": str(tmp_path / "app" / "data"),
        "STANDIN_RECORD": str(tmp_path / "environment.json"),
    }

    def main() -> None:
        sys.path.insert(0, str(info.parent))
        # It reads its environment as it is imported.
        from lab.content.openwebui import start

        start.main()

    known = {"PATH": os.environ["PATH"], **places, **environment}
    with Fork(main, env=known, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: ask(f"{url}/health").status == 200, "Open WebUI")
            yield url
        finally:
            process.kill()


def test_a_setting_of_the_first_start_stays_unless_persistence_is_off(tmp_path: Path) -> None:
    with webui(tmp_path, ENABLE_SIGNUP="true") as url:
        assert ask(f"{url}/api/config").json["onboarding"] is True
        answer = ask(f"{url}/api/v1/auths/signup", {**ADMIN, "name": "x"})
        assert (answer.status, answer.json["role"]) == (200, "admin")
    with webui(tmp_path, ENABLE_SIGNUP="false") as url:
        assert ask(f"{url}/api/config").json["features"]["enable_signup"] is True
    off = {"ENABLE_SIGNUP": "false", "ENABLE_PERSISTENT_CONFIG": "false"}
    with webui(tmp_path, **off) as url:
        assert ask(f"{url}/api/config").json["features"]["enable_signup"] is False
        stranger = {"email": "stranger@lab", "password": "x", "name": "x"}
        assert ask(f"{url}/api/v1/auths/signup", stranger).status == 403


def test_a_session_holds_while_the_secret_key_is_the_same(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    with webui(tmp_path, WEBUI_SECRET_KEY="one", **GIVEN) as url:
        token = ask(f"{url}/api/v1/auths/signin", ADMIN).json["token"]
        shown = ask(f"{url}/standin/environment").body.decode()
    assert "WEBUI_SECRET_KEY" in shown and ADMIN["password"] not in shown
    session = {"Authorization": f"Bearer {token}"}
    with webui(tmp_path, WEBUI_SECRET_KEY="one", OPENAI_API_BASE_URLS=nobody) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 200
        # Of an engine that is down.
        assert ask(f"{url}/api/models", headers=session).json == {"data": []}
        assert ask(f"{url}/api/models").status == 401
    with webui(tmp_path, WEBUI_SECRET_KEY="two", **GIVEN) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 401


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """The browser of all tests here, each with sessions of its own."""
    with started() as chromium:
        yield chromium


def chats(seen: Seen) -> Reply:
    """A gateway: qwen is hot, mistral is cold, and the switch to broken fails while one waits."""
    asked = json.loads(seen.body)
    error = {"message": COLD, "type": "unavailable"}
    if asked["model"] == "mistral":
        return as_json({"error": error}, 503, Retry_After="30")
    if not asked["stream"]:
        return as_json({"choices": [{"message": {"content": "A title"}}]})
    words = ["Hello ", "from ", asked["model"]]
    events = [{"choices": [{"delta": {"content": word}}]} for word in words]
    if asked["model"] == "broken":
        events = [{"error": {"message": "the switch failed"}}]
    lines = [": a comment", "data: {half", *(f"data: {json.dumps(event)}" for event in events)]
    body = "\n\n".join([*lines, "data: [DONE]", ""]).encode()
    return Reply(body, headers={"Content-Type": "text/event-stream"})


@contextlib.contextmanager
def chatting(
    chromium: Chromium, tmp_path: Path, **environment: str
) -> Iterator[tuple[WebUI, LocalServer]]:
    """Somebody signed in with a browser, and the gateway that Open WebUI asks."""
    names = ("qwen", "mistral", "broken", "auto")
    listed = as_json({"object": "list", "data": [{"id": name} for name in names]})
    answers = {"/v1/models": listed, "/v1/chat/completions": chats}
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(serving(answers))
        given = {"OPENAI_API_BASE_URLS": f"{gateway.url}/v1", **GIVEN, **environment}
        url = stack.enter_context(webui(tmp_path, **given))
        page = stack.enter_context(browser(chromium=chromium)).page(url)
        yield WebUI(page, ADMIN["email"], ADMIN["password"]), gateway


def asked(gateway: LocalServer) -> list[dict[str, Any]]:
    return [json.loads(seen.body) for seen in gateway.seen if seen.method == "POST"]


def test_a_chat_in_a_browser_and_what_it_asks_behind_ones_back(
    chromium: Chromium, tmp_path: Path
) -> None:
    with chatting(chromium, tmp_path) as (somebody, gateway):
        assert somebody.models() == ["qwen", "mistral", "broken", "auto"]
        assert somebody.chosen == "qwen"
        somebody.say("Say hello")
        somebody.reads("Hello from qwen")
        until(lambda: len(asked(gateway)) == 4, "the answer, a title, what may be next, tags")
        told = asked(gateway)
        assert {each["model"] for each in told} == {"qwen"}
        assert [bool(each.get("tools")) for each in told if each["stream"]] == [True]
        somebody.new_chat("mistral")
        somebody.say("Say hello")
        somebody.reads(COLD)
        somebody.new_chat("broken")
        somebody.say("Say hello")
        somebody.reads("the switch failed")
        until(lambda: len(asked(gateway)) == 10, "a switch that failed is asked for thrice more")


def test_tasks_and_the_first_chat_go_to_the_models_of_its_settings(
    chromium: Chromium, tmp_path: Path
) -> None:
    given = {
        "DEFAULT_MODELS": "auto",
        "TASK_MODEL_EXTERNAL": "auto",
        "DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}',
    }
    with chatting(chromium, tmp_path, **given) as (somebody, gateway):
        assert somebody.chosen == "auto"
        somebody.new_chat("qwen")
        somebody.say("Say hello")
        somebody.reads("Hello from qwen")
        until(lambda: len(asked(gateway)) == 4, "the answer and three tasks")
    assert sorted(each["model"] for each in asked(gateway)) == ["auto", "auto", "auto", "qwen"]
    assert not any("tools" in each for each in asked(gateway))
