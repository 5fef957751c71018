"""The processes of a container of ours, by the kernel's word alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from onhost_fakes import let_the_kernel_kill, put_in_container

from lockstep.onhost.core import errors, layout
from lockstep.onhost.docker import docker_api, stop_container
from lockstep.onhost.docker.container_processes import (
    kill_processes,
    process_ids_of_container,
    slice_of,
)


def test_each_container_has_a_slice_of_its_own_below_that_of_all() -> None:
    names = ["vllm-qwen36", "vllm_qwen36", "vllm", "vllm-qwen36-fallback"]
    assert len({slice_of(name) for name in names}) == len(names)
    # One level for each "-" of a slice's name.
    assert slice_of("vllm-qwen36-fallback") == "system-lockstep-vllm.qwen36.fallback.slice"


def test_its_processes_are_found_and_no_other_s(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    assert process_ids_of_container("vllm", paths) == process_ids_of_container(None, paths) == []
    put_in_container(paths, "vllm-qwen36", 12, 11)
    put_in_container(paths, "vllm", 13)
    assert process_ids_of_container("vllm-qwen36", paths) == [11, 12]
    put_in_container(paths, "vllm-qwen36")
    assert process_ids_of_container("vllm-qwen36", paths) == []


def test_docker_may_keep_its_groups_beside_systemd_s(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    group = paths.groups_of_units.parent / slice_of("vllm") / "0123"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("14\n")
    assert process_ids_of_container("vllm", paths) == [14]


def test_a_group_that_ends_while_it_is_read_has_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = layout.Paths(tmp_path)
    put_in_container(paths, "vllm", 15)

    def fail_to_read(*_: object, **__: object) -> str:
        raise OSError(19, "No such device")

    monkeypatch.setattr(Path, "read_text", fail_to_read)
    assert process_ids_of_container("vllm", paths) == []


def test_the_kernel_is_told_to_kill_all_that_is_in_a_container_and_nothing_else(
    tmp_path: Path,
) -> None:
    paths = layout.Paths(tmp_path)
    assert kill_processes("vllm", paths, 0) == []
    put_in_container(paths, "vllm", 16)
    put_in_container(paths, "vllm-qwen36", 17)
    with pytest.raises(errors.Problem, match="processes 16 of container vllm are alive 0 s after"):
        kill_processes("vllm", paths, 0)
    killed_groups = [file.parent.name for file in tmp_path.rglob("cgroup.kill")]
    assert killed_groups == [slice_of("vllm")]


def test_a_unit_s_container_is_ended_where_docker_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = layout.Paths(tmp_path)
    killed_groups = let_the_kernel_kill(monkeypatch)
    put_in_container(paths, "vllm", 18)
    assert stop_container.main(["vllm"], paths) == 0
    assert killed_groups == [slice_of("vllm")]
    assert "container vllm was ended without Docker" in capsys.readouterr().out
    # Whether one of an earlier deploy lives, nobody knows then.
    with pytest.raises(docker_api.DockerUnreachable):
        stop_container.main(["vllm"], paths)
