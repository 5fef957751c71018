"""Containers of ours: their processes, their end by Docker or without, and a silent daemon."""

import socket
from pathlib import Path
from unittest.mock import Mock

import pytest
from onhost_fakes import FakeDocker, let_the_kernel_kill, put_in_container

from lockstep.onhost.core import errors, layout
from lockstep.onhost.docker import docker_api, stop_container
from lockstep.onhost.docker.container_processes import (
    kill_processes,
    process_ids_of_container,
    slice_of,
)


@pytest.fixture
def paths(tmp_path):
    return layout.Paths(tmp_path)


@pytest.fixture
def docker(paths):
    paths.docker_socket.parent.mkdir(parents=True)
    docker = FakeDocker(paths.docker_socket)
    docker.containers["vllm-qwen36"] = "x"
    yield docker
    docker.close()


def test_each_container_has_a_slice_of_its_own_below_that_of_all(paths):
    names = ["vllm-qwen36", "vllm_qwen36", "vllm", "vllm-qwen36-fallback"]
    assert len({slice_of(name) for name in names}) == len(names)
    # One level for each "-" of a slice's name.
    assert slice_of("vllm-qwen36-fallback") == "system-lockstep-vllm.qwen36.fallback.slice"
    # Docker may keep its groups beside systemd's.
    group = paths.groups_of_units.parent / slice_of("vllm") / "0123"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("14\n")
    assert process_ids_of_container("vllm", paths) == [14]


def test_its_processes_are_found_and_no_other_s(paths, monkeypatch):
    assert process_ids_of_container("vllm", paths) == process_ids_of_container(None, paths) == []
    put_in_container(paths, "vllm-qwen36", 12, 11)
    put_in_container(paths, "vllm", 13)
    assert process_ids_of_container("vllm-qwen36", paths) == [11, 12]

    # A group may end while it is read.
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=OSError(19, "No such device")))
    assert process_ids_of_container("vllm", paths) == []


def test_the_kernel_is_told_to_kill_all_that_is_in_a_container_and_nothing_else(paths):
    assert kill_processes("vllm", paths, 0) == []
    put_in_container(paths, "vllm", 16)
    put_in_container(paths, "vllm-qwen36", 17)
    with pytest.raises(errors.Problem, match="processes 16 of container vllm are alive 0 s after"):
        kill_processes("vllm", paths, 0)
    killed_groups = [file.parent.name for file in paths.root.rglob("cgroup.kill")]
    assert killed_groups == [slice_of("vllm")]


def test_a_unit_s_container_is_ended_where_docker_is_gone(paths, monkeypatch, capsys):
    killed_groups = let_the_kernel_kill(monkeypatch)
    put_in_container(paths, "vllm", 18)
    assert stop_container.main(["vllm"], paths) == 0
    assert killed_groups == [slice_of("vllm")]
    assert "container vllm was ended without Docker" in capsys.readouterr().out
    # Whether one of an earlier deploy lives, nobody knows then.
    with pytest.raises(docker_api.DockerUnreachable):
        stop_container.main(["vllm"], paths)


def test_a_container_is_stopped_until_its_name_is_free(docker, paths, capsys):
    docker.deaf_removals = 2  # `docker run --rm` is removing it at the same moment
    assert stop_container.main(["vllm-qwen36"], paths) == 0
    assert docker.containers == {}
    # Where there is none it has nothing to do, and says nothing.
    capsys.readouterr()
    assert stop_container.main(["vllm-qwen36"], paths) == 0
    assert capsys.readouterr().out == ""


def test_a_container_that_stays_is_an_error_and_one_of_others_is_left_alone(docker, paths):
    docker.deaf_removals = 10_000
    with pytest.raises(errors.Problem, match=r"still there .* after it was killed. Remedy"):
        stop_container.stop(docker_api.Docker(paths.docker_socket), "vllm-qwen36", 0.3, paths)
    docker.containers["open-webui"] = "ghcr.io/open-webui/open-webui:ollama"
    docker.foreign, docker.deaf_removals = {"open-webui"}, 0
    with pytest.raises(errors.Problem, match="open-webui is not Lockstep's"):
        stop_container.main(["open-webui"], paths)
    assert "open-webui" in docker.containers


@pytest.mark.parametrize(
    ("hangs", "remedy"), [(False, "systemctl start docker"), (True, "systemctl restart docker")]
)
def test_a_daemon_that_hangs_is_restarted_and_one_that_refuses_is_started(tmp_path, hangs, remedy):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(str(path))
        if hangs:
            daemon.listen()
        with pytest.raises(docker_api.DockerUnreachable, match=f"Remedy: sudo {remedy}"):
            docker_api.Docker(path, timeout=0.05).running_containers()
