"""What a real apt makes of our files and programs: it logs in at archive and proxy, and a command
that is refused a lock says it in the words that we know."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tools
from a_lock import held

from lockstep.inventory.settings import Proxy, Settings, Sources
from lockstep.onhost.core import layout, output
from lockstep.onhost.system import apt_turn
from lockstep.system.base_files import host_files

Asked = list[tuple[str, str | None, str | None]]


@pytest.fixture
def server() -> Iterator[tuple[int, Asked]]:
    """An archive that is a proxy too: its port, and paths with the logins that came with them."""
    asked: Asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heads = (self.headers["Authorization"], self.headers["Proxy-Authorization"])
            asked.append((self.path, *heads))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield http.server_port, asked
        http.shutdown()
        thread.join()


def test_apt_logs_in_at_the_archives_and_at_the_proxy(
    tmp_path: Path, server: tuple[int, Asked]
) -> None:
    port, asked = server
    here = f"127.0.0.1:{port}"
    lines = (
        f"deb [trusted=yes] http://me:%23p%25%24s%22w'ord@{here}/direct ./",
        f"deb [trusted=yes] http://me:other@{here}/direct-too ./",
        "deb [trusted=yes] http://far:away@archive.example/proxied ./",
    )
    settings = Settings(
        name="spark",
        targets={},
        sources=Sources(apt=lines),
        proxy=Proxy(http=f"http://via:pr$oxy@{here}", no="127.0.0.1"),
    )
    files = {each.path: each for each in host_files(settings) if each.path.startswith("/etc/apt/")}
    tools.written(tmp_path, {path: file.text for path, file in files.items()})
    own_folders(tmp_path)
    done = tools.run(["apt-get", "update"], env={"APT_CONFIG": str(tmp_path / "apt.conf")})
    assert "404" in done.stdout, done.stdout + done.stderr
    logged_in = {(path.rpartition("/./")[0], *heads) for path, *heads in asked}
    assert logged_in == {
        ("/direct", basic("me:#p%$s\"w'ord"), None),
        ("/direct-too", basic("me:other"), None),
        ("http://archive.example/proxied", basic("far:away"), basic("via:pr$oxy")),
    }


def own_folders(root: Path) -> None:
    """Folders and settings with which apt and dpkg work below `root` only."""
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / folder).mkdir(parents=True)
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "apt.conf").write_text(f'Dir "{root}/";\nAPT::Sandbox::User "root";\n')


WORKS = {
    "var/lib/apt/lists/lock": ["apt-get", "-q", "update"],
    "var/lib/dpkg/lock-frontend": ["dpkg", "--admindir=ROOT/var/lib/dpkg", "--configure", "-a"],
    "var/lib/dpkg/lock": ["dpkg", "--admindir=ROOT/var/lib/dpkg", "--configure", "-a"],
    "var/cache/apt/archives/lock": ["apt-get", "-q", "-y", "upgrade"],
}


@pytest.mark.parametrize("lock", WORKS)
@pytest.mark.parametrize("seen", [True, False], ids=["waits", "was too late to see it"])
def test_a_command_waits_for_a_lock_that_somebody_else_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, seen: bool
) -> None:
    own_folders(tmp_path)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setattr(apt_turn, "LOOK_EVERY_S", 0.05)
    if not seen:
        monkeypatch.setattr(apt_turn, "holder", lambda paths: None)
    work = [word.replace("ROOT", str(tmp_path)) for word in WORKS[lock]]
    said: list[str] = []
    with held(tmp_path / lock) as process:

        def say(line: str) -> None:
            said.append(line)
            if "waited" in line or "faster" in line:
                process.release()

        monkeypatch.setattr(output, "say", say)
        assert apt_turn.main(["--", *work], layout.Paths(tmp_path)) == 0, said
    assert [line for line in said if ("waited" if seen else "faster") in line] != [], said


def basic(login: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(login.encode()).decode()
