"""A host that falls silent: who reaches it over SSH ends in time."""

import itertools
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.core.state import hosts, open_lab
from lab.host import connection
from lab.host.machine import login_command
from lockstep.core.errors import InventoryError
from lockstep.fleet.login import ALIVE, known_name, login, typed_login
from lockstep.tasks.run import ssh_connection as of_pyinfra

WITHIN_S = 45
DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_ssh_of_ours_gives_up_within_45_s(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path))
    lab = open_lab("one")
    description = connection.describe(lab, hosts(1))
    for words in (
        login("spark-1", {"ssh_user": "you"}).command(["true"]),
        connection.ssh_command(description, "spark1", ["true"]),
        login_command(lab, hosts(1)[0]),
    ):
        pairs = itertools.pairwise(words)
        options = dict(word.split("=", 1) for flag, word in pairs if flag == "-o")
        every, most = int(options["ServerAliveInterval"]), int(options["ServerAliveCountMax"])
        assert int(options["ConnectTimeout"]) <= WITHIN_S
        # One question each interval; it ends when one more than `most` would be without answer.
        assert 0 < every * (most + 1) <= WITHIN_S, words
    # A person's configuration gets the same lines.
    text = (DOCS / "switching.md").read_text(encoding="utf-8")
    for name in ("ServerAliveInterval", "ServerAliveCountMax"):
        assert f"    {name} {ALIVE[name]}\n" in text


def test_pyinfras_own_connection_gives_up_within_45_s(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = socket.socket()
    client = SimpleNamespace(get_transport=lambda: SimpleNamespace(sock=sock))
    connector = SimpleNamespace(client=client)
    monkeypatch.setattr(of_pyinfra, "host", SimpleNamespace(connector=connector))
    of_pyinfra.set_socket_options()
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, every, most, untaken = (
        sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"))
        for name in ("KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
    )
    assert idle + every * most <= WITHIN_S
    # Keep-alive does not look at a connection with something sent that nobody took.
    assert 0 < untaken <= WITHIN_S * 1000
    # macOS, which a deploy may come from, has neither of these two, and keeps the others.
    for name in ("TCP_KEEPIDLE", "TCP_USER_TIMEOUT"):
        monkeypatch.delattr(socket, name)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 9)
    of_pyinfra.set_socket_options()
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == every == 5


def test_a_login_has_the_port_and_no_brackets_and_other_connectors_are_refused() -> None:
    for name, data, to, known_hosts_name in (
        ("@ssh/spark-1", {}, "spark-1", "spark-1"),
        ("spark-1", {"ssh_user": "anna", "ssh_port": 22}, "-p 22 anna@spark-1", "spark-1"),
        ("a", {"ssh_hostname": "fd00::12", "ssh_user": "anna"}, "anna@fd00::12", "fd00::12"),
        ("fd00::12", {"ssh_port": 2222}, "-p 2222 fd00::12", "'[fd00::12]:2222'"),
    ):
        assert (typed_login(name, data), known_name(name, data)) == (to, known_hosts_name)
    assert login("@local", {}).command(["switch.sh", "a b"]) == ["switch.sh", "a b"]
    assert login("@ssh/x", {"ssh_key": "k"}).command(["s", "a b"])[-2:] == ["x", "s 'a b'"]
    with pytest.raises(InventoryError, match="only hosts over ssh and @local"):
        login("@docker/x", {})
