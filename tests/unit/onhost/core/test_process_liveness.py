"""A process is known by its number and its start; a number alone is given out again."""

from __future__ import annotations

import os
import subprocess

import pytest

from lockstep.onhost.core import process_liveness


def test_a_process_lives_until_it_ends_and_another_of_its_number_is_not_it() -> None:
    running = subprocess.Popen(["sleep", "60"])
    start = process_liveness.start_ticks(running.pid)
    assert start > 0 and process_liveness.is_alive(running.pid, start)
    assert not process_liveness.is_alive(running.pid, start - 1)
    running.kill()
    running.wait()
    assert process_liveness.start_ticks(running.pid) == 0
    assert not process_liveness.is_alive(running.pid, start)


def test_of_one_that_proc_hides_the_number_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_liveness, "start_ticks", lambda _: 0)
    assert process_liveness.is_alive(os.getpid(), 7)
    child = subprocess.Popen(["true"])
    child.wait()
    assert not process_liveness.is_alive(child.pid, 7)
    assert not process_liveness.is_alive(0, 0) and not process_liveness.is_alive(-1, 0)
