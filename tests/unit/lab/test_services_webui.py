"""The stand-in of Open WebUI: accounts, settings that persist, and the engines' models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lab_servers import ask, free_port, program, until

CODE = (
    "import sys, types; sys.path.insert(0, sys.argv[1]); from openwebui import start; start.main()"
)
ADMIN = {"email": "admin@lab", "password": "a password"}


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
    with program(CODE, [str(info.parent)], **places, **environment):
        url = f"http://127.0.0.1:{port}"
        until(lambda: ask(f"{url}/health").status == 200, "Open WebUI")
        yield url


def signup(url: str, email: str) -> int:
    body = {"email": email, "password": "x", "name": "x"}
    return ask(f"{url}/api/v1/auths/signup", body).status


def signin(url: str) -> int:
    return ask(f"{url}/api/v1/auths/signin", ADMIN).status


def test_with_signup_closed_a_stranger_gets_no_account(tmp_path: Path) -> None:
    with webui(tmp_path, ENABLE_SIGNUP="false") as url:
        assert signup(url, "stranger@lab") == 403
        assert ask(f"{url}/api/config").json["features"]["enable_signup"] is False


def test_without_that_the_first_to_come_becomes_administrator(tmp_path: Path) -> None:
    with webui(tmp_path) as url:
        assert ask(f"{url}/api/config").json["onboarding"] is True
        answer = ask(f"{url}/api/v1/auths/signup", {**ADMIN, "name": "x"})
        assert (answer.status, answer.json["role"]) == (200, "admin")


def test_the_administrator_is_made_once_and_outlives_the_container(tmp_path: Path) -> None:
    given = {"WEBUI_ADMIN_EMAIL": ADMIN["email"], "WEBUI_ADMIN_PASSWORD": ADMIN["password"]}
    with webui(tmp_path, **given) as url:
        assert signin(url) == 200
        assert signup(url, "stranger@lab") == 403
    with webui(tmp_path) as url:
        assert signin(url) == 200


def test_a_setting_of_the_first_start_stays_unless_persistence_is_off(tmp_path: Path) -> None:
    with webui(tmp_path, ENABLE_SIGNUP="true"):
        pass
    with webui(tmp_path, ENABLE_SIGNUP="false") as url:
        assert ask(f"{url}/api/config").json["features"]["enable_signup"] is True
    off = {"ENABLE_SIGNUP": "false", "ENABLE_PERSISTENT_CONFIG": "false"}
    with webui(tmp_path, **off) as url:
        assert ask(f"{url}/api/config").json["features"]["enable_signup"] is False


def test_no_value_of_the_environment_is_ever_shown(tmp_path: Path) -> None:
    with webui(tmp_path, WEBUI_SECRET_KEY="very secret") as url:
        shown = ask(f"{url}/standin/environment").body.decode()
    assert "WEBUI_SECRET_KEY" in shown
    assert "very secret" not in shown + (tmp_path / "environment.json").read_text()


def test_a_session_holds_while_the_secret_key_is_the_same(tmp_path: Path) -> None:
    given = {"WEBUI_ADMIN_EMAIL": ADMIN["email"], "WEBUI_ADMIN_PASSWORD": ADMIN["password"]}
    with webui(tmp_path, WEBUI_SECRET_KEY="one", **given) as url:
        token = ask(f"{url}/api/v1/auths/signin", ADMIN).json["token"]
    session = {"Authorization": f"Bearer {token}"}
    with webui(tmp_path, WEBUI_SECRET_KEY="one", **given) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 200
    with webui(tmp_path, WEBUI_SECRET_KEY="two", **given) as url:
        assert ask(f"{url}/api/v1/auths/", headers=session).status == 401


def test_the_models_of_an_engine_that_is_down_are_left_out(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    given = {
        "WEBUI_ADMIN_EMAIL": ADMIN["email"],
        "WEBUI_ADMIN_PASSWORD": ADMIN["password"],
        "OPENAI_API_BASE_URLS": nobody,
    }
    with webui(tmp_path, **given) as url:
        token = ask(f"{url}/api/v1/auths/signin", ADMIN).json["token"]
        session = {"Authorization": f"Bearer {token}"}
        assert ask(f"{url}/api/models", headers=session).json == {"data": []}
        assert ask(f"{url}/api/models").status == 401
