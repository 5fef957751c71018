"""A tunnel by ssh: which ports it takes here, and how its end is told."""

import socket
import sys
from pathlib import Path

import pytest
from a_probe import program

from lockstep.core.errors import LockstepError
from lockstep.fleet.login import Login
from lockstep.fleet.tunnel import tunnel

SPARK = Login("spark-1", ("ssh", "--", "spark-1"))
# Listens where `-L 127.0.0.1:PORT:…` says, and writes down what it was asked.
SSH = """exec {python} -c '
import socket, sys, time
words = sys.argv[1:]
open("{asked}", "w").write(" ".join(words))
held = [
    socket.create_server(("127.0.0.1", int(word.split(":")[1])))
    for option, word in zip(words, words[1:]) if option == "-L"
]
time.sleep(30)
' "$@"
"""


@pytest.fixture
def ssh_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arguments that ssh got."""
    target_path = tmp_path / "asked"
    program(tmp_path / "bin", "ssh", SSH.format(python=sys.executable, asked=target_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/local/bin:/usr/bin:/bin")
    return target_path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_the_hosts_own_port_is_taken_here_if_free_and_an_end_is_told(ssh_arguments: Path) -> None:
    port = free_port()
    with tunnel(SPARK, [f"http://127.0.0.1:{port}"], same_ports=True) as connection:
        assert connection.urls == (f"http://127.0.0.1:{port}",)
        connection.check()
    assert f"-L 127.0.0.1:{port}:127.0.0.1:{port}" in ssh_arguments.read_text()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with tunnel(SPARK, [f"http://127.0.0.1:{port}"], same_ports=True) as connection:
            assert connection.urls != (f"http://127.0.0.1:{port}",)
    with tunnel(SPARK, [f"http://127.0.0.1:{free_port()}"]) as connection:
        connection.process.terminate()
        connection.process.wait()
        with pytest.raises(LockstepError, match="spark-1: the tunnel to the host has ended"):
            connection.check()


def test_this_machine_itself_needs_none_and_one_that_is_refused_says_why(tmp_path, monkeypatch):
    with tunnel(Login("@local", ()), ["http://127.0.0.1:1"]) as connection:
        assert connection.urls == ("http://127.0.0.1:1",)
        connection.check()
    program(tmp_path / "bin", "ssh", "echo administratively prohibited >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    with (
        pytest.raises(LockstepError, match=r"prohibited\. Try `ssh` to it .* allow TCP forwarding"),
        tunnel(SPARK, ["http://127.0.0.1:30001"]),
    ):
        pass
