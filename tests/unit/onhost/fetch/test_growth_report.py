"""A long installation without a terminal says how much it has fetched, and ends as it would."""

from __future__ import annotations

import os
import queue
import threading

import pytest

from lockstep.onhost.core import event_lines
from lockstep.onhost.environment import engine_build
from lockstep.onhost.fetch import growth_report

MB = 1_000_000
# Fetches 3 MB and then waits until somebody has said so, as long as a test may take.
FETCHES = """
import os, pathlib, time
cache = pathlib.Path(os.environ["UV_CACHE_DIR"])
(cache / "archive").mkdir(parents=True)
(cache / "archive/wheel").write_bytes(bytes(3_000_000))
end = time.monotonic() + 180
while not (cache.parent / "said").exists() and time.monotonic() < end:
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(growth_report, "PERIOD_S", 0.01)


def test_the_size_of_a_folder_is_that_of_all_files_below_it(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/one").write_bytes(bytes(10))
    (tmp_path / "two").write_bytes(bytes(5))
    (tmp_path / "round").symlink_to(tmp_path)
    assert growth_report.size(tmp_path) - os.lstat(tmp_path / "round").st_size == 15
    assert growth_report.size(tmp_path / "absent") == 0


def test_what_a_folder_has_gained_is_said_while_the_block_runs(tmp_path, monkeypatch):
    messages: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(event_lines, "say", messages.put)
    (tmp_path / "earlier").write_bytes(bytes(5 * MB))
    with growth_report.report_growth(tmp_path):
        assert messages.get(timeout=180).endswith(" s: still at it")
        (tmp_path / "wheel").write_bytes(bytes(2 * MB))
        lines = iter(lambda: messages.get(timeout=180).partition(": ")[2], "")
        assert next(line for line in lines if line != "still at it").endswith(" MB")
        assert f"{tmp_path.name} +2 MB" in lines
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_an_installation_says_what_the_package_cache_has_gained(tmp_path, monkeypatch):
    def say(line: str) -> None:
        if line.endswith(": uv-cache +3 MB"):
            (tmp_path / "said").touch()

    monkeypatch.setattr(event_lines, "say", say)
    spec = {"home": str(tmp_path / "0123"), "proxy": {}, "index": None, "packages": []}
    engine_build.Build(spec, "pytorch").run_command("python3", "-c", FETCHES)
    assert (tmp_path / "said").exists()
