"""`lockstep open`: the addresses of a Spark, and a tunnel to those that only it reaches."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from an_inventory import ANNA, write_inventory
from click.testing import CliRunner, Result

from lockstep.cli.gateway import open as module
from lockstep.cli.main import main
from lockstep.core.errors import LockstepError
from lockstep.fleet.hosts import NOT_DEPLOYED, HostAnswer
from lockstep.fleet.login import Login
from lockstep.fleet.tunnel import Tunnel

GATEWAY: dict[str, Any] = {"gateway": {"bind": "0.0.0.0", "tls": "own"}}


def run(folder: Path, *words: str, **more: Any) -> Result:
    data = {"ssh_user": "anna", **ANNA, **more}
    path = write_inventory(folder, {"spark-1": data, "spark-2": data})
    return CliRunner().invoke(main, ["open", "-i", str(path), *words])


@pytest.fixture
def tunnels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requested tunnels; the first Spark's ports are free here, the others' are not."""
    requests: list[Any] = []

    @contextlib.contextmanager
    def tunnel(where: Login, urls: Sequence[str], *, same_ports: bool) -> Iterator[Tunnel]:
        requests.append((where.name, tuple(urls), same_ports))
        other_urls = tuple(f"http://127.0.0.1:{4000 + n}" for n, _ in enumerate(urls))
        yield Tunnel(where, tuple(urls) if len(requests) == 1 else other_urls)

    def wait(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "tunnel", tunnel)
    monkeypatch.setattr(module, "_answers", lambda _: True)
    monkeypatch.setattr(module.time, "sleep", wait)
    return requests


def test_loopback_ports_are_brought_here_until_ctrl_c(tmp_path: Path, tunnels: list[Any]) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "spark-1",
        "  page  http://127.0.0.1:8090",
        "  chat  http://127.0.0.1:8080",
        "  API   http://127.0.0.1:8090/v1",
        "  key   none is needed there",
        "spark-2",
        "  page  http://127.0.0.1:4000",
        "  chat  http://127.0.0.1:4001",
        "  API   http://127.0.0.1:4000/v1",
        "  key   none is needed there",
        "Open until Ctrl-C.",
    ]
    urls = ("http://127.0.0.1:8090", "http://127.0.0.1:8080")
    assert tunnels == [("spark-1", urls, True), ("spark-2", urls, True)]


def test_what_others_reach_or_print_opens_nothing(tmp_path: Path, tunnels: list[Any]) -> None:
    result = run(tmp_path, "--print", "--limit", "spark-1")
    assert result.exit_code == 0 and tunnels == []
    assert result.output.splitlines()[1] == "  page  http://127.0.0.1:8090"
    last = f"  page and chat only on the Spark itself; `lockstep open -i {tmp_path}/sparks.py` "
    assert result.output.splitlines()[5] == last + "brings them here"
    result = run(tmp_path, "--limit", "spark-1", **GATEWAY, webui={"bind": "0.0.0.0"})
    assert result.exit_code == 0 and tunnels == []
    assert result.output.splitlines() == [
        "spark-1",
        "  page  https://spark-1:8443",
        "  chat  http://spark-1:8080",
        "  API   https://spark-1:8443/v1",
        f"  key   `lockstep key add NAME -i {tmp_path}/sparks.py` makes one for a person, and "
        "shows it once",
        "  trust https://spark-1:8443/root.crt, its own authority (`lockstep help tls`)",
    ]
    # The page stays where it is beside a chat that they do not reach.
    result = run(tmp_path, "--limit", "spark-1", **GATEWAY)
    assert result.output.splitlines()[1:3] == [
        "  page  https://spark-1:8443",
        "  chat  http://127.0.0.1:8080",
    ]
    assert tunnels == [("spark-1", ("http://127.0.0.1:8080",), True)]


def test_a_spark_that_is_not_reached_or_not_deployed_to_keeps_no_other(
    tmp_path: Path, tunnels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    through = module.tunnel

    def tunnel(where: Login, *arguments: Any, **more: Any) -> Any:
        if where.name == "spark-1":
            raise LockstepError("no tunnel to the host", where="spark-1", found="no route")
        return through(where, *arguments, **more)

    monkeypatch.setattr(module, "tunnel", tunnel)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == "lockstep: spark-1: no tunnel to the host; found no route.\n"
    assert result.stdout.startswith("spark-2\n") and "Open until Ctrl-C." in result.stdout
    faults = {"spark-1": NOT_DEPLOYED, "spark-2": ""}
    monkeypatch.setattr(module, "tunnel", through)
    monkeypatch.setattr(module, "_answers", lambda _: False)
    monkeypatch.setattr(
        module, "ask", lambda where, *_, **__: HostAnswer(0, fault=faults[where.name])
    )
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == "spark-1: not deployed yet → lockstep deploy\n"
    lines = result.stdout.splitlines()
    assert lines[0] == "spark-2" and lines[-1] == "Open until Ctrl-C."
    # It has been deployed to: its servers may still be starting.
    assert lines[-2].startswith("  no answer from page and chat now; `lockstep status")
    assert "Open until" not in run(tmp_path, "--limit", "spark-1").output


def test_only_an_answer_counts_as_one() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert module._answers(url)
        # What a tunnel's end does where nobody listens behind it.
        server.RequestHandlerClass = socketserver.BaseRequestHandler
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert not module._answers(url)
    assert not module._answers(url) and not module._answers(url.replace("http", "https"))
