"""A daemon that does not answer is named with what brings it back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lockstep.onhost.docker import docker_api


@pytest.mark.parametrize(
    ("state", "remedy"), [("absent", "start"), ("refuses", "start"), ("hangs", "restart")]
)
def test_a_daemon_that_hangs_is_restarted_and_one_that_is_not_there_is_started(
    tmp_path: Path, state: str, remedy: str
) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        if state != "absent":
            daemon.bind(str(path))
        if state == "hangs":
            daemon.listen()
        with pytest.raises(docker_api.DockerUnreachable) as problem:
            docker_api.Docker(path, timeout=0.05).running_containers()
    assert f"Remedy: sudo systemctl {remedy} docker" in str(problem.value)
    assert ("a hot model" in str(problem.value)) == (remedy == "restart")
