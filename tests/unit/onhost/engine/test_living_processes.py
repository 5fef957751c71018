"""Processes of an engine that are alive although its unit counts as stopped."""

from __future__ import annotations

from pathlib import Path

from a_model import model
from onhost_fakes import host_root, put_in_container

from lockstep.onhost.engine import living_processes


def test_the_control_groups_of_unit_and_container_tell_who_lives(tmp_path: Path) -> None:
    qwen = model(container="vllm-qwen36")
    paths = host_root(tmp_path / "root", {})
    assert (
        living_processes.leftover_process_texts(qwen, paths)
        == living_processes.processes_of_model(qwen, paths)
        == []
    )

    (paths.proc / "12").mkdir()
    (paths.proc / "12/cgroup").write_text("0::/system.slice/vllm-qwen36.service\n")
    put_in_container(paths, "vllm-qwen36", 13, 14)
    assert living_processes.processes_of_model(qwen, paths) == [12, 13, 14]
    assert living_processes.leftover_process_texts(qwen, paths) == [
        "processes 12 of stopped vllm-qwen36.service",
        "processes 13, 14 in container vllm-qwen36 outlived vllm-qwen36.service",
    ]
