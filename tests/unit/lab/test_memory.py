"""The unified memory that a stand-in Spark shows, and who holds it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.host.memory import TOTAL, Ledger, meminfo


def memory_figures(folder: Path) -> dict[str, int]:
    lines = (folder / "meminfo").read_text().splitlines()
    return {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path)
    ledger.reset()
    return ledger


def test_an_engine_that_freezes_the_host_is_seen_until_the_power_is_back(
    ledger: Ledger, tmp_path: Path
) -> None:
    assert not ledger.is_frozen
    (tmp_path / "held/host-frozen").touch()
    ledger.update()
    assert ledger.is_frozen
    ledger.reset()
    assert not ledger.is_frozen


@given(st.floats(min_value=-5, max_value=200))
def test_meminfo_is_always_equally_long_and_consistent(available: float) -> None:
    text = meminfo(available)
    assert len(text) == len(meminfo(118))
    figures = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    assert 0 <= figures["MemFree"] <= figures["MemAvailable"] <= TOTAL


def test_a_holder_that_lives_takes_memory_and_gives_it_back_when_it_ends(
    ledger: Ledger, tmp_path: Path
) -> None:
    # The guest has it mounted: it is overwritten in place.
    inode = (tmp_path / "meminfo").stat().st_ino
    assert memory_figures(tmp_path)["MemTotal"] == 127_600_000
    (tmp_path / "held/knobs.json").write_text('{"is_wedged": true}')
    with (tmp_path / "held/engine").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for text, available_gib in (("", 118), ("80", 38), ("80 1.5 66.2", 38)):
            holder.seek(0)
            holder.write(text)
            holder.flush()
            ledger.update()
            assert memory_figures(tmp_path)["MemAvailable"] == available_gib * 1024 * 1024
    (tmp_path / "held/engine").write_text("80")
    ledger.update()
    assert memory_figures(tmp_path)["MemAvailable"] == 118 * 1024 * 1024
    assert (tmp_path / "meminfo").stat().st_ino == inode
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["knobs.json"]


def test_memory_that_lingers_stays_taken_after_its_holder_died_or_until_a_power_cut(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("lab.host.memory.time.monotonic", lambda: clock[0])
    (tmp_path / "held/dead").write_text("20 30\n")
    ledger.update()
    clock[0] += 29.9
    ledger.update()
    assert ledger.available == 98
    clock[0] += 0.2
    ledger.update()
    assert ledger.available == 118
    (tmp_path / "held/dead").write_text("20 3000")
    ledger.update()
    assert ledger.available == 98
    ledger.reset()
    assert ledger.available == 118
    # One of the same name lingers from its own end.
    clock[0] += 40
    (tmp_path / "held/dead").write_text("20 30")
    ledger.update()
    assert ledger.available == 98


def test_memory_falls_and_rises_at_a_rate(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("lab.host.memory.time.monotonic", lambda: clock[0])
    ledger.move(10, rate=2)
    assert ledger.moving and ledger.available == 118
    clock[0] += 4
    ledger.update()
    assert ledger.available == 110
    clock[0] += 60
    ledger.update()
    assert not ledger.moving and ledger.available == 10
    ledger.move(12, rate=1)
    clock[0] += 1
    ledger.update()
    assert ledger.available == 11
    ledger.move(118)
    assert not ledger.moving and ledger.available == 118


def test_what_is_read_fills_the_page_cache_until_the_guest_drops_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    drop = tmp_path / "sys/vm/drop_caches"
    drop.parent.mkdir(parents=True)
    drop.touch()

    def free() -> float:
        ledger.update()
        assert memory_figures(tmp_path)["MemAvailable"] == 18 * 1024 * 1024
        return memory_figures(tmp_path)["MemFree"] / 1024**2

    with (tmp_path / "held/engine").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        holder.write("100 0 5")
        holder.flush()
        assert free() == 18 - 3 - 5
        holder.seek(0)
        holder.write("100 0 66")
        holder.flush()
        assert free() == 0
        drop.write_text("3\n")
        assert free() == 17.5
        assert drop.read_text() == ""
        assert free() == 17.5
