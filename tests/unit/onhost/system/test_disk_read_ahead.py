"""The read-ahead of a disk: raised for a load, and its own value returns in any case."""

import os
from pathlib import Path

import pytest
from a_disk import Disk
from onhost_fakes import host_root

from lockstep.onhost.core import layout
from lockstep.onhost.system import disk_read_ahead

RAISED = disk_read_ahead.RAISED_KIB


@pytest.fixture
def paths(tmp_path) -> layout.Paths:
    return host_root(tmp_path / "root", {})


def start(paths: layout.Paths, model: str = "qwen") -> list[str]:
    """Raise as the gate does, for a model on the disk; returns what was told."""
    lines: list[str] = []
    disk_read_ahead.raise_read_ahead(model, [paths.root.stat().st_dev], paths, lines.append)
    return lines


@pytest.mark.parametrize("is_partition", [False, True])
def test_a_disk_reads_in_large_steps_until_its_value_is_put_back(paths, is_partition):
    disk = Disk(paths, is_partition=is_partition)
    assert start(paths) == []
    assert disk.kib == RAISED
    device = paths.root.stat().st_dev
    assert disk_read_ahead.read_ahead_kib(device, paths) == RAISED
    assert disk_read_ahead.disk_name(device, paths) == ("nvme0n1p2" if is_partition else "nvme0n1")
    disk.give(3.0)
    assert disk_read_ahead.read_bytes(device, paths) == 3 * 2**30
    disk_read_ahead.put_back(paths, pytest.fail, "mistral")
    assert disk.kib == RAISED
    disk_read_ahead.put_back(paths, pytest.fail, "qwen")
    assert disk.kib == 128 and not paths.read_ahead.exists()


def test_after_a_start_that_was_killed_the_first_value_is_still_the_disks_own(paths):
    disk = Disk(paths, own_kib=256)
    start(paths)
    start(paths, "mistral")
    assert disk.kib == RAISED
    disk_read_ahead.put_back(paths, pytest.fail, "mistral")
    assert disk.kib == 256


def test_what_somebody_has_set_is_left_and_a_disk_that_was_unplugged_is_no_fault(paths):
    disk = Disk(paths, own_kib=2 * RAISED)
    assert (start(paths), disk.kib) == ([], 2 * RAISED)
    assert not paths.read_ahead.exists()
    disk.control.write_text("128\n")
    start(paths)
    disk.control.write_text("4096\n")
    disk_read_ahead.put_back(paths, pytest.fail)
    assert disk.kib == 4096 and not paths.read_ahead.exists()
    disk.control.write_text("128\n")
    start(paths)
    disk.control.unlink()
    disk_read_ahead.put_back(paths, pytest.fail)
    assert not paths.read_ahead.exists()


def test_a_kernel_that_refuses_is_told_and_leaves_nothing(paths, monkeypatch):
    disk = Disk(paths)
    write_text = Path.write_text

    def refuse(path, *arguments, **keys):
        if path == disk.control:
            raise OSError(30, "Read-only file system", str(path))
        return write_text(path, *arguments, **keys)

    monkeypatch.setattr(Path, "write_text", refuse)
    [line] = start(paths)
    assert line.startswith("reads stay small while it loads: /")
    assert line.endswith("/read_ahead_kb: Read-only file system")
    assert disk.kib == 128 and not paths.read_ahead.exists()


def test_a_file_system_without_a_disk_is_left_alone(paths):
    device = paths.root.stat().st_dev
    [line] = start(paths)
    assert line.endswith(f"no read-ahead for device {os.major(device)}:{os.minor(device)}")
    assert disk_read_ahead.read_bytes(device, paths) is None
    assert disk_read_ahead.read_ahead_kib(device, paths) == 0
    assert ":" in disk_read_ahead.disk_name(device, paths)
    paths.read_ahead.write_text("{") if paths.run.exists() else None
    disk_read_ahead.put_back(paths, pytest.fail)
