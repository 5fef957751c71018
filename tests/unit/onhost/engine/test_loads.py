"""300 loads while other programs take memory at random: the guard makes none of them worse.

A made-up host: an engine maps its shards one after the other and takes what it reads, a page cache
grows with the same bytes, and others take memory at a random moment and keep it. Each load is done
with small reads, as without the guard's read-ahead, and with the guard; at a random moment
something may end it.
"""

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from a_disk import Disk, write_checkpoint
from a_model import model
from onhost_fakes import host_root

from lockstep.onhost.core import unified_memory
from lockstep.onhost.engine import (
    exec_stop_post,
    free_pages_during_load,
    living_processes,
    open_files,
)
from lockstep.onhost.system import disk_read_ahead

SEED = 43
LOADS = 300
TOTAL_GIB, MINIMUM_GIB, KILL_GIB = 119.6, 8.0, 8.0
STEP_S = free_pages_during_load.EVERY_S
#: GiB/s of a mapped file in reads of 128 KiB (article 003).
SMALL_GIB_S = 0.11


def plans():
    """Loads, each with sizes in GiB, GiB/s and seconds."""
    random = Random(SEED)
    for _ in range(LOADS):
        plan = SimpleNamespace(needs=random.uniform(20, 100), shards=random.randint(1, 20))
        plan.disk_gib_s = random.choice((0.2, 0.47, 1.1, 5.0))
        plan.falls = [
            (random.uniform(0, 1.2 * plan.needs / plan.disk_gib_s), random.uniform(0, 40))
            for _ in range(random.randint(0, 3))
        ]
        plan.end = random.choice(("ready", "fails", "unit is stopped", "program is killed"))
        plan.held_gib = random.uniform(3, TOTAL_GIB - plan.needs)
        plan.end_share = 1.0 if plan.end == "ready" else random.random()
        yield plan


class Host:
    """One host through many loads; `run` returns what its memory saw."""

    def __init__(self, root, monkeypatch):
        self.paths = host_root(root, {})
        self.disk = Disk(self.paths)
        self.inodes = [open_files.inode_of(file) for file in write_checkpoint(self.paths, 20)]
        monkeypatch.setattr(unified_memory, "memory", lambda _: self.memory())
        monkeypatch.setattr(unified_memory, "drop_and_compact_cache", self.drop_all)
        monkeypatch.setattr(living_processes, "processes_of_model", lambda *_: [])
        monkeypatch.setattr(open_files, "open_and_mapped", self.open_and_mapped)
        monkeypatch.setattr(os, "posix_fadvise", self.release)

    def begin(self, plan):
        self.plan, self.time, self.shard, self.loaded_gib = plan, 0.0, -1, 0.0
        #: GiB in the page cache by shard; what an engine maps of the present one cannot go.
        self.cache = [0.0] * 20

    def others_gib(self) -> float:
        """Memory of others by now; it never gets less."""
        fallen_gib = sum(gib for moment, gib in self.plan.falls if moment <= self.time)
        return self.plan.held_gib + fallen_gib

    def memory(self) -> unified_memory.Memory:
        available = TOTAL_GIB - self.others_gib() - self.loaded_gib
        free = available - sum(self.cache)
        # The kernel takes the cache back before anybody goes without.
        return unified_memory.Memory(TOTAL_GIB, available, max(free, min(available, 0.5)))

    def open_and_mapped(self, *_):
        return set(), {self.inodes[self.shard]} if self.shard >= 0 else set()

    def mapped_gib(self) -> float:
        return self.cache[self.shard] if self.shard >= 0 else 0.0

    def spare_gib(self) -> float:
        """Page cache that somebody could let go."""
        return sum(self.cache) - self.mapped_gib()

    def drop(self, shard: int):
        if shard != self.shard:
            self.cache[shard] = 0.0

    def drop_all(self, *_):
        for shard in range(20):
            self.drop(shard)

    def release(self, descriptor, *_):
        self.drop(int(Path(f"/proc/self/fd/{descriptor}").readlink().stem))

    def run(self, guard: free_pages_during_load.LoadGuard | None) -> bool:
        """Load until the plan's end; tells whether the memory watch killed it."""
        plan, is_raised, was_short = self.plan, False, False
        shard_gib = plan.needs / plan.shards
        # Memory only gets less in a load, so its end tells enough of one that nobody guards.
        step_s = STEP_S if guard else 10 * STEP_S
        while self.loaded_gib / plan.needs < plan.end_share - 1e-9:
            if self.shard < 0 or self.loaded_gib >= (self.shard + 1) * shard_gib - 1e-9:
                self.shard += 1
                # A file gets the value of the moment at which it is opened.
                is_raised = self.disk.kib == disk_read_ahead.RAISED_KIB
            rate = plan.disk_gib_s if is_raised else min(plan.disk_gib_s, SMALL_GIB_S)
            rest_gib = (self.shard + 1) * shard_gib - self.loaded_gib
            read = min(rate * step_s, rest_gib)
            self.loaded_gib += read
            self.cache[self.shard] += read
            others_gib = self.others_gib()
            self.time += step_s
            if self.memory().available < KILL_GIB:
                self.shard = -1
                return True
            if guard is not None:
                fallen_gib = self.others_gib() - others_gib
                # Less only by what others took meanwhile and what the engine has mapped.
                without_gib = self.memory().free + fallen_gib + self.mapped_gib()
                assert without_gib >= MINIMUM_GIB or was_short, plan
                guard.look()
                was_short = self.memory().free < MINIMUM_GIB
                assert not was_short or self.spare_gib() < 1e-6, plan
        self.shard = -1
        return False


def test_no_load_of_300_is_worse_for_the_guard_and_none_leaves_anything(tmp_path, monkeypatch):
    host = Host(tmp_path / "root", monkeypatch)
    device = host.paths.root.stat().st_dev
    served_model = model("m", unit="m.service", weights=("/models/m",), load_free_gib=MINIMUM_GIB)
    kills = ends = 0
    for plan in plans():
        host.begin(plan)
        would_be_killed = host.run(None)
        host.begin(plan)
        disk_read_ahead.raise_read_ahead("m", [device], host.paths, pytest.fail)
        guard = free_pages_during_load.LoadGuard(
            served_model, host.paths, lambda _: None, now=lambda: host.time
        )
        is_killed = host.run(guard)
        assert is_killed <= would_be_killed, plan
        if plan.end in ("ready", "fails") and not is_killed:
            guard.finish()
            assert host.spare_gib() == 0.0
        else:
            ends += 1
        exec_stop_post.main(["ended", "m"], host.paths)
        assert host.disk.kib == 128 and not host.paths.read_ahead.exists(), plan
        kills += is_killed
    # The plans are hard enough to show something.
    assert 30 < kills < 200 and ends > 100
