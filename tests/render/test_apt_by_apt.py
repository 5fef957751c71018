"""What a real apt makes of our files: it logs in at archive and proxy, and everybody may ask it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tools

from lockstep.hostfiles import host_files
from lockstep.settings import Proxy, Settings, Sources

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
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    (tmp_path / "apt.conf").write_text(f'Dir "{tmp_path}/";\nAPT::Sandbox::User "root";\n')
    done = tools.run(["apt-get", "update"], env={"APT_CONFIG": str(tmp_path / "apt.conf")})
    assert "404" in done.stdout, done.stdout + done.stderr
    logged_in = {(path.rpartition("/./")[0], *heads) for path, *heads in asked}
    assert logged_in == {
        ("/direct", basic("me:#p%$s\"w'ord"), None),
        ("/direct-too", basic("me:other"), None),
        ("http://archive.example/proxied", basic("far:away"), basic("via:pr$oxy")),
    }


def basic(login: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(login.encode()).decode()
