"""The reading of weights, seen from outside: what is let go, what is counted and told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from a_disk import GIB, Disk, let_use, write_checkpoint
from a_model import model
from onhost_fakes import host_root, put_in_container, write_meminfo

from lockstep.onhost.core import layout
from lockstep.onhost.engine import free_pages_during_load, weight_reading
from lockstep.onhost.records import last_weight_loads
from lockstep.onhost.system import disk_read_ahead

UNIT = "m.service"
PID = 4711


class Load:
    """A load of two shards of 1 GiB, at a time that the test sets; files let go by name."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **keys: object) -> None:
        self.paths: layout.Paths = host_root(root, {})
        self.shards = write_checkpoint(self.paths)
        self.time, self.released_names = 0.0, list[str]()
        self.model = model("m", unit=UNIT, weights=("/models/m",), **keys)
        monkeypatch.setattr(os, "posix_fadvise", self._release)

    def _release(self, descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        self.released_names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def reading(self) -> weight_reading.LoadReading:
        return weight_reading.LoadReading(self.model, self.paths, lambda: self.time)

    def use(self, mapped_files: tuple[Path, ...] = (), open_files: tuple[Path, ...] = ()) -> None:
        let_use(self.paths, PID, UNIT, mapped_files, open_files)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    return Load(tmp_path / "root", monkeypatch)


def test_a_file_is_let_go_once_when_nobody_maps_it_any_more(load: Load) -> None:
    first, second = load.shards
    reading = load.reading()
    steps = [((), ()), ((first,), (first,)), ((second,), (first,)), ((second,), ()), ((), ())]
    released_files = []
    for mapped_files, open_files in steps:
        load.use(mapped_files, open_files)
        reading.look()
        released_files.append(load.released_names.copy())
        load.released_names.clear()
    reading.look()
    assert [*released_files, load.released_names] == [[], [], [], [first.name], [second.name], []]
    reading.let_go_all()
    assert sorted(load.released_names) == [first.name, second.name]


def test_a_file_that_was_read_and_not_mapped_stays_until_the_end(load: Load) -> None:
    """Another thread of the engine may have read it ahead."""
    reading = load.reading()
    for open_files in (load.shards[:1], []):
        load.use(open_files=tuple(open_files))
        reading.look()
    assert load.released_names == []


def test_an_engine_in_a_container_is_seen_by_its_files_and_not_by_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(tmp_path / "root", monkeypatch, container="vllm-m")
    put_in_container(load.paths, "vllm-m", PID)
    let_use(load.paths, PID, "docker.scope", tuple(load.shards[:1]))
    reading = load.reading()
    reading.look()
    let_use(load.paths, PID, "docker.scope")
    reading.look()
    assert load.released_names == [load.shards[0].name]


def test_time_and_bytes_are_from_the_first_file_to_the_last_read(load: Load) -> None:
    disk = Disk(load.paths)
    device = load.paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("m", [device], load.paths, pytest.fail)
    # The engine's program comes from the same disk.
    disk.give(5.0)
    reading = load.reading()
    assert reading.record() is None
    progress = []
    for seconds, given_gib, shard in [
        (1, 5.0, None),
        (2, 5.5, 0),
        (3, 6.0, 0),
        (4, 7.0, 1),
        # Graphs are captured while the file stays mapped, and others read a little.
        (5, 7.001, 1),
        (60, 7.002, 1),
    ]:
        load.time = float(seconds)
        disk.give(given_gib)
        load.use(mapped_files=() if shard is None else (load.shards[shard],))
        reading.look()
        progress.append(reading.progress())
    assert progress == [
        None,
        weight_reading.LoadProgress(GIB // 2, 2 * GIB, GIB / 2),
        weight_reading.LoadProgress(GIB, 2 * GIB, GIB / 2),
        weight_reading.LoadProgress(2 * GIB, 2 * GIB, GIB),
        None,
        None,
    ]
    record = reading.record()
    assert record is not None
    assert (record.bytes, record.needs_bytes, record.seconds) == (2 * GIB, 2 * GIB, 3.0)
    assert (record.device, record.disk) == (disk.device, "nvme0n1")
    assert weight_reading.finished_load_text(record) == (
        "read 2.0 GiB of weights from nvme0n1 in 3 s, 716 MB/s, in steps of 16 MiB"
    )
    assert ", 716 MB/s (this disk gives 900), in steps" in weight_reading.finished_load_text(
        record, 900.0
    )


def test_without_a_disks_counter_no_rate_is_told(load: Load) -> None:
    reading = load.reading()
    for load.time in (1.0, 2.0, 3.0):
        load.use(mapped_files=tuple(load.shards))
        reading.look()
    assert reading.progress() is None
    record = reading.record()
    assert record is not None and record.bytes is None
    assert weight_reading.finished_load_text(record) == (
        f"read 2.0 GiB of weights from {record.device} in 3 s"
    )


def test_at_the_end_nothing_is_set_and_the_load_is_on_record(load: Load) -> None:
    disk = Disk(load.paths)
    device = load.paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("m", [device], load.paths, pytest.fail)
    lines: list[str] = []
    progress: list[weight_reading.LoadProgress] = []
    guard = free_pages_during_load.LoadGuard(
        load.model, load.paths, lines.append, progress.append, lambda: load.time
    )
    load.use(mapped_files=tuple(load.shards))
    for second in range(1, 22):
        load.time = float(second)
        disk.give(second * 0.1)
        guard.look()
    guard.finish()
    assert disk.kib == 128 and not load.paths.read_ahead.exists()
    assert sorted(load.released_names) == [file.name for file in load.shards]
    assert len(progress) == 2
    assert lines == ["read 2.0 GiB of weights from nvme0n1 in 21 s, 102 MB/s, in steps of 16 MiB"]
    record = last_weight_loads.last_load_by_model(load.paths)["m"]
    assert (record.seconds, record.read_ahead_kib) == (21.0, disk_read_ahead.RAISED_KIB)


def test_near_the_minimum_the_disk_has_its_own_read_ahead(load: Load) -> None:
    disk = Disk(load.paths)
    device = load.paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("m", [device], load.paths, pytest.fail)
    guard = free_pages_during_load.LoadGuard(
        load.model, load.paths, lambda _: None, now=lambda: load.time
    )
    sizes = []
    for free_gib in (100.0, 60.0, 20.0, 14.0, 10.5, 10.5, 9.9, 10.0, 10.0):
        load.time += free_pages_during_load.EVERY_S
        write_meminfo(load.paths, 100.0, free_gib)
        guard.free_memory_if_low()
        sizes.append(disk.kib)
    large = disk_read_ahead.RAISED_KIB
    # It may fall as far again until the next look.
    assert sizes == [large, large, 128, 128, 128, large, 128, large, large]
