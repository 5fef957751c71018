"""`lockstep open`: the addresses of a Spark, and a tunnel to those that only it reaches."""

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
def tunnels(monkeypatch):
    """The requested tunnels; the first Spark's ports are free here, the others' are not."""
    requests: list[Any] = []

    @contextlib.contextmanager
    def tunnel(where: Login, urls: Sequence[str], *, same_ports: bool) -> Iterator[Tunnel]:
        assert same_ports
        requests.append((where.name, *urls))
        other_urls = tuple(f"http://127.0.0.1:{4000 + n}" for n, _ in enumerate(urls))
        yield Tunnel(where, tuple(urls) if len(requests) == 1 else other_urls)

    def wait(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "tunnel", tunnel)
    monkeypatch.setattr(module, "_answers", lambda _: True)
    monkeypatch.setattr(module.time, "sleep", wait)
    return requests


PAGE, CHAT = "http://127.0.0.1:8090", "http://127.0.0.1:8080"


def test_loopback_ports_are_brought_here_until_ctrl_c(tmp_path: Path, tunnels: list[Any]) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    first, second = result.output.split("spark-2\n")
    for words in (f"page  {PAGE}", f"chat  {CHAT}", f"API   {PAGE}/v1", "key   none is needed"):
        assert f"\n  {words}" in first
    assert "page  http://127.0.0.1:4000" in second and "chat  http://127.0.0.1:4001" in second
    assert second.endswith("\nOpen until Ctrl-C.\n")
    assert tunnels == [("spark-1", PAGE, CHAT), ("spark-2", PAGE, CHAT)]


def test_what_others_reach_or_print_opens_nothing(tmp_path: Path, tunnels: list[Any]) -> None:
    result = run(tmp_path, "--print", "--limit", "spark-1")
    assert result.exit_code == 0 and tunnels == []
    assert f"only on the Spark itself; `lockstep open -i {tmp_path}/sparks.py`" in result.output
    result = run(tmp_path, "--limit", "spark-1", **GATEWAY, webui={"bind": "fd00::1"})
    assert result.exit_code == 0 and tunnels == []
    for words in (
        "page  https://spark-1:8443",
        "chat  http://[fd00::1]:8080",
        f"key   `lockstep key add NAME -i {tmp_path}/sparks.py` makes one for a person",
        "trust https://spark-1:8443/root.crt, its own authority",
    ):
        assert f"\n  {words}" in result.output
    # The page stays where it is beside a chat that they do not reach.
    result = run(tmp_path, "--limit", "spark-1", **GATEWAY)
    assert "\n  page  https://spark-1:8443" in result.output
    assert tunnels == [("spark-1", CHAT)]


def test_a_spark_that_is_not_reached_keeps_no_other(tmp_path, tunnels, monkeypatch):
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


def test_a_spark_of_which_nothing_answers_is_named_with_its_reason(tmp_path, tunnels, monkeypatch):
    answers = {"spark-1": HostAnswer(0, fault=NOT_DEPLOYED), "spark-2": HostAnswer(0)}
    monkeypatch.setattr(module, "_answers", lambda _: False)
    monkeypatch.setattr(module, "ask", lambda where, *_, **__: answers[where.name])
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == "spark-1: not deployed yet → lockstep deploy\n"
    # The other has been deployed to: its servers may still be starting.
    assert result.stdout.startswith("spark-2\n") and "Open until Ctrl-C." in result.stdout
    assert "\n  no answer from page and chat now; `lockstep status" in result.stdout


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
