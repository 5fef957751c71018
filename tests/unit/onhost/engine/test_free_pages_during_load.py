"""The guard over loading: below its minimum the page cache goes, bounded and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a_model import model
from onhost_fakes import host_root, write_meminfo

from lockstep.onhost.core import layout, unified_memory
from lockstep.onhost.engine import free_pages_during_load


class Host:
    """A host with 20 GiB available, whose kernel gives the cache up when it is told to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: layout.Paths = host_root(root, {})
        self.time, self.after_gib = 0.0, 20.0
        self.lines: list[str] = []
        self.guard = free_pages_during_load.LoadGuard(
            model("m", load_free_gib=8.0, weights=("/models/m",), unit="m.service"),
            self.paths,
            self.lines.append,
            now=lambda: self.time,
        )
        real_free_pages = unified_memory.drop_and_compact_cache

        def free_pages(*arguments: Any) -> None:
            real_free_pages(*arguments)
            write_meminfo(self.paths, 20.0, self.after_gib)

        monkeypatch.setattr(unified_memory, "drop_and_compact_cache", free_pages)

    def look(self, free_gib: float, after_gib: float) -> bool:
        """Let the guard look at this free memory, `after_gib` after a drop; tells if it dropped."""
        controls = [self.paths.proc / "sys/vm" / name for name in ("drop_caches", "compact_memory")]
        write_meminfo(self.paths, 20.0, free_gib)
        self.after_gib = after_gib
        for control in controls:
            control.write_text("")
        self.guard.free_memory_if_low()
        texts = [control.read_text() for control in controls]
        assert texts in (["", ""], ["3\n", "1\n"])
        return texts != ["", ""]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "root", monkeypatch)


def test_below_the_minimum_the_cache_is_dropped_and_memory_compacted(host: Host) -> None:
    assert not host.look(8.0, 19.0)
    assert host.look(7.9, 19.0)
    assert host.lines == [
        "7.9 GiB free, less than 8.0: page cache dropped, 19.0 GiB free now",
    ]


def test_it_is_told_at_most_once_in_30_s_and_done_each_time(host: Host) -> None:
    for host.time in range(31):
        assert host.look(3.0, 19.0)
    assert host.lines == [
        "3.0 GiB free, less than 8.0: page cache dropped, 19.0 GiB free now",
        "3.0 GiB free, less than 8.0: page cache dropped, 19.0 GiB free now (time 31)",
    ]


def test_where_it_does_not_help_the_next_one_waits(host: Host) -> None:
    tries = []
    for host.time in range(25):
        tries.append(host.look(3.0, 4.0))
    assert [second for second, has_tried in enumerate(tries) if has_tried] == [0, 10, 20]


def test_no_minimum_and_no_figures_do_nothing(host: Host) -> None:
    host.guard.model = model(load_free_gib=0.0)
    assert not host.look(0.0, 19.0)
    host.guard.model = model(load_free_gib=8.0)
    (host.paths.proc / "meminfo").write_text("MemTotal: 1 kB\n")
    host.guard.free_memory_if_low()
    (host.paths.proc / "meminfo").unlink()
    host.guard.free_memory_if_low()
    assert host.lines == []


def test_a_kernel_that_refuses_is_told_and_nothing_fails(host: Host) -> None:
    for name in ("drop_caches", "compact_memory"):
        control = host.paths.proc / "sys/vm" / name
        control.unlink(missing_ok=True)
        control.mkdir()
    write_meminfo(host.paths, 20.0, 3.0)
    host.guard.free_memory_if_low()
    assert host.lines[:2] == [
        "drop_caches not written: Is a directory",
        "compact_memory not written: Is a directory",
    ]
