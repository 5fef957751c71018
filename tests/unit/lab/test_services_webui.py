"""The stand-in of Open WebUI: accounts, settings that persist, models, and chats in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork import Fork
from lab_servers import ask, free_port, until
from local_server import Reply, SeenRequest, as_json

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

    variables = {"PATH": os.environ["PATH"], **places, **environment}
    with Fork(main, env=variables, stdout=subprocess.DEVNULL) as process:
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
    dead_url = f"http://127.0.0.1:{free_port()}/v1"
    with webui(tmp_path, WEBUI_SECRET_KEY="one", **GIVEN) as url:
        token = ask(f"{url}/api/v1/auths/signin", ADMIN).json["token"]
        output = ask(f"{url}/standin/environment").body.decode()
    assert "WEBUI_SECRET_KEY" in output and ADMIN["password"] not in output
    session = {"Authorization": f"Bearer {token}"}
    with webui(tmp_path, WEBUI_SECRET_KEY="one", OPENAI_API_BASE_URLS=dead_url) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 200
        # Of an engine that is down.
        assert ask(f"{url}/api/models", headers=session).json == {"data": []}
        assert ask(f"{url}/api/models").status == 401
    with webui(tmp_path, WEBUI_SECRET_KEY="two", **GIVEN) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 401


def chats(request: SeenRequest) -> Reply:
    """A gateway: qwen is hot, mistral is cold, and the switch to broken fails while one waits."""
    question = json.loads(request.body)
    error = {"message": COLD, "type": "unavailable"}
    if question["model"] == "mistral":
        return as_json({"error": error}, 503, Retry_After="30")
    if not question["stream"]:
        return as_json({"choices": [{"message": {"content": "A title"}}]})
    words = ["Hello ", "from ", question["model"]]
    events = [{"choices": [{"delta": {"content": word}}]} for word in words]
    if question["model"] == "broken":
        events = [{"error": {"message": "the switch failed"}}]
    lines = [": a comment", "data: {half", *(f"data: {json.dumps(event)}" for event in events)]
    body = "\n\n".join([*lines, "data: [DONE]", ""]).encode()
    return Reply(body, headers={"Content-Type": "text/event-stream"})
