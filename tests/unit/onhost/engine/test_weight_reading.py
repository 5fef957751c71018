"""A load seen from outside: files let go, bytes counted and told, and memory that stays free."""

import os
from pathlib import Path

import pytest
from a_disk import GIB, Disk, let_use, write_checkpoint
from a_model import model
from onhost_fakes import host_root, put_in_container, write_meminfo

from lockstep.onhost.core import unified_memory
from lockstep.onhost.engine import free_pages_during_load, weight_reading
from lockstep.onhost.records import last_weight_loads
from lockstep.onhost.system import disk_read_ahead

UNIT, PID = "m.service", 4711
LARGE = disk_read_ahead.RAISED_KIB


class Load:
    """A load of two shards of 1 GiB, at a time that the test sets; files let go by name.

    The kernel gives the page cache up when it is told to.
    """

    def __init__(self, root, monkeypatch):
        self.paths = host_root(root, {})
        self.shards = write_checkpoint(self.paths)
        self.time, self.released_names, self.lines, self.progress = 0.0, [], [], []
        weights = ("/models/m",)
        self.model = model("m", unit=UNIT, weights=weights, load_free_gib=8.0, container="vllm-m")
        self.guard = free_pages_during_load.LoadGuard(
            self.model, self.paths, self.lines.append, self.progress.append, lambda: self.time
        )
        vm = self.paths.proc / "sys/vm"
        self.controls = [vm / "drop_caches", vm / "compact_memory"]
        self.after_gib, real_drop = 3.0, unified_memory.drop_and_compact_cache

        def drop(*arguments):
            real_drop(*arguments)
            write_meminfo(self.paths, 20.0, self.after_gib)

        monkeypatch.setattr(unified_memory, "drop_and_compact_cache", drop)
        monkeypatch.setattr(os, "posix_fadvise", self._release)

    def _release(self, descriptor, offset, length, advice):
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        self.released_names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def reading(self) -> weight_reading.LoadReading:
        return weight_reading.LoadReading(self.model, self.paths, lambda: self.time)

    def disk_with_larger_reads(self) -> Disk:
        disk = Disk(self.paths)
        device = self.paths.root.stat().st_dev
        disk_read_ahead.raise_read_ahead("m", [device], self.paths, pytest.fail)
        return disk

    def use(self, *mapped_files: Path, open_files: tuple[Path, ...] = (), unit: str = UNIT) -> None:
        let_use(self.paths, PID, unit, mapped_files, open_files)

    def drops(self, free_gib: float, after_gib: float) -> bool:
        """Tell whether the guard drops the cache at this free memory; `after_gib` comes of it."""
        write_meminfo(self.paths, 20.0, free_gib)
        self.after_gib = after_gib
        for control in self.controls:
            control.write_text("")
        self.guard.free_memory_if_low()
        texts = [control.read_text() for control in self.controls]
        assert texts in (["", ""], ["3\n", "1\n"])
        return texts != ["", ""]


@pytest.fixture
def load(tmp_path, monkeypatch):
    return Load(tmp_path / "root", monkeypatch)


def test_a_file_is_let_go_once_when_nobody_maps_it_any_more(load):
    first, second = load.shards
    reading = load.reading()
    # One that was read and not mapped stays: another thread may have read it ahead.
    steps = [((), (second,)), ((), ()), ((first,), (first,)), ((second,), (first,))]
    released_files = []
    for mapped_files, open_files in [*steps, ((second,), ()), ((), ()), ((), ())]:
        load.use(*mapped_files, open_files=open_files)
        reading.look()
        released_files.append(load.released_names.copy())
        load.released_names.clear()
    assert released_files == [[], [], [], [], [first.name], [second.name], []]
    reading.let_go_all()
    assert sorted(load.released_names) == [first.name, second.name]
    # An engine in a container is seen by its files, and not by their paths.
    load.released_names.clear()
    put_in_container(load.paths, "vllm-m", PID)
    reading = load.reading()
    load.use(first, unit="docker.scope")
    reading.look()
    load.use(unit="docker.scope")
    reading.look()
    assert load.released_names == [first.name]


def test_time_and_bytes_are_from_the_first_file_to_the_last_read(load):
    disk = load.disk_with_larger_reads()
    # The engine's program comes from the same disk.
    disk.give(5.0)
    reading = load.reading()
    assert reading.record() is None
    progress = []
    # Graphs are captured while the last file stays mapped, and others read a little.
    steps = [(1, 5.0, None), (2, 5.5, 0), (3, 6.0, 0), (4, 7.0, 1), (5, 7.001, 1), (60, 7.002, 1)]
    for seconds, given_gib, shard in steps:
        load.time = float(seconds)
        disk.give(given_gib)
        load.use(*([] if shard is None else [load.shards[shard]]))
        reading.look()
        progress.append(reading.progress())
    assert progress == [
        None,
        weight_reading.LoadProgress(GIB // 2, 2 * GIB, GIB / 2),
        weight_reading.LoadProgress(GIB, 2 * GIB, GIB / 2),
        weight_reading.LoadProgress(2 * GIB, 2 * GIB, GIB),
        *(None, None),
    ]
    record = reading.record()
    assert (record.bytes, record.needs_bytes, record.seconds) == (2 * GIB, 2 * GIB, 3.0)
    assert (record.device, record.disk) == (disk.device, "nvme0n1")
    text = weight_reading.finished_load_text(record, 900.0)
    assert ", 716 MB/s (this disk gives 900), in steps" in text


def test_without_a_disks_counter_no_rate_is_told(load):
    reading = load.reading()
    for load.time in (1.0, 2.0, 3.0):
        load.use(*load.shards)
        reading.look()
    record = reading.record()
    assert (reading.progress(), record.bytes) == (None, None)
    assert "MB/s" not in weight_reading.finished_load_text(record)


def test_at_the_end_nothing_is_set_and_the_load_is_on_record(load):
    disk = load.disk_with_larger_reads()
    load.use(*load.shards)
    for second in range(1, 22):
        load.time = float(second)
        disk.give(second * 0.1)
        load.guard.look()
    load.guard.finish()
    assert disk.kib == 128 and not load.paths.read_ahead.exists()
    assert sorted(load.released_names) == [file.name for file in load.shards]
    assert len(load.progress) == 2
    message = "read 2.0 GiB of weights from nvme0n1 in 21 s, 102 MB/s, in steps of 16 MiB"
    assert load.lines == [message]
    record = last_weight_loads.last_load_by_model(load.paths)["m"]
    assert (record.seconds, record.read_ahead_kib) == (21.0, LARGE)


def test_near_the_minimum_the_disk_has_its_own_read_ahead(load):
    disk = load.disk_with_larger_reads()
    load.guard.model = model("m", unit=UNIT, weights=("/models/m",))
    sizes = []
    for free_gib in (100.0, 60.0, 20.0, 14.0, 10.5, 10.5, 9.9, 10.0, 10.0):
        load.time += free_pages_during_load.EVERY_S
        write_meminfo(load.paths, 100.0, free_gib)
        load.guard.free_memory_if_low()
        sizes.append(disk.kib)
    # It may fall as far again until the next look.
    assert sizes == [LARGE, LARGE, 128, 128, 128, LARGE, 128, LARGE, LARGE]


def test_below_the_minimum_the_cache_is_dropped_each_time_and_told_at_most_once_in_30_s(load):
    assert not load.drops(8.0, 19.0)
    for load.time in range(31):
        assert load.drops(7.9, 19.0)
    message = "7.9 GiB free, less than 8.0: page cache dropped, 19.0 GiB free now"
    assert load.lines == [message, f"{message} (time 31)"]
    # Where it does not help the next one waits.
    times = []
    for load.time in range(31, 56):
        times += [load.time] if load.drops(3.0, 4.0) else []
    assert times == [31, 41, 51]


def test_a_kernel_that_refuses_is_told_and_where_there_is_no_minimum_nothing_is_done(load):
    load.guard.model = model(load_free_gib=0.0)
    assert not load.drops(0.0, 19.0)
    load.guard.model = load.model
    (load.paths.proc / "meminfo").write_text("MemTotal: 1 kB\n")
    load.guard.free_memory_if_low()
    assert load.lines == []
    for control in load.controls:
        control.unlink()
        control.mkdir()
    write_meminfo(load.paths, 20.0, 3.0)
    load.guard.free_memory_if_low()
    refusals = [f"{control.name} not written: Is a directory" for control in load.controls]
    assert load.lines[:2] == refusals
