"""The disk's own rate: once per boot and disk, of the largest file, never of a small one."""

import os
from pathlib import Path

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.weights import disk_rate

MIB = 2**20


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_rate, "LEAST", 32 * MIB)
    return layout.Paths(tmp_path)


def a_file(folder: Path, name: str, mib: int) -> Path:
    path = folder / name
    # Not sparse: holes are given without the disk.
    path.write_bytes(os.urandom(MIB) * mib)
    return path


def test_the_largest_file_is_read_once_in_a_boot(paths, tmp_path, monkeypatch):
    small, large = a_file(tmp_path, "a", 33), a_file(tmp_path, "b", 34)
    paths_read, open_ = [], os.open

    def note_direct_open(path, flags, *more):
        if flags & os.O_DIRECT:
            paths_read.append(path)
        return open_(path, flags, *more)

    monkeypatch.setattr(os, "open", note_direct_open)
    rate = disk_rate.measure_once(paths, [small, large, tmp_path / "missing"])
    assert rate is not None and rate > 0
    assert paths_read == [large]
    assert disk_rate.rate_of_files(paths, [small]) == rate
    assert disk_rate.measure_once(paths, [large]) is None


def test_a_small_file_tells_nothing_of_its_disk(paths, tmp_path):
    assert disk_rate.measure_once(paths, [a_file(tmp_path, "a", 31)]) is None
    assert disk_rate.measure_once(paths, []) is None
    assert not paths.disk_rates.exists()


def test_a_slow_disk_is_read_for_two_seconds_at_most(paths, tmp_path, monkeypatch):
    path = a_file(tmp_path, "a", 34)
    read = []

    def preadv(descriptor, buffers, offset):
        read.append(offset)
        return 16 * MIB

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(disk_rate.clock, "now", lambda: 0.4 * len(read))
    # 40 MB/s, as on a port of USB 2; the first block is not counted.
    assert disk_rate.measure_once(paths, [path]) == pytest.approx(16 * MIB / 0.4 / 1e6, rel=0.01)
    assert read == [at * 16 * MIB for at in range(6)]


@pytest.mark.parametrize("text", ["[]", "{", '{"8:1": "fast"}'])
def test_a_spoiled_record_is_no_rate(paths, text):
    paths.disk_rates.parent.mkdir(parents=True)
    paths.disk_rates.write_text(text)
    assert disk_rate.rate_of(paths, "8:1") is None
