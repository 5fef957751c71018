"""The course of a deploy: its stages, its downloads with speed and time left, and their display."""

import re
from pathlib import Path

import pytest
from a_run import Clock, good, plain, step

from lockstep.deploy import events
from lockstep.deploy.course import STAGES, Downloads
from lockstep.deploy.plain import downloads_text
from lockstep.deploy.screen import frame
from lockstep.onhost.fetch.download_progress import Progress

TASKS = Path(__file__).parents[3] / "tasks"


def test_every_part_of_the_deploy_is_of_a_stage() -> None:
    parts = {
        title
        for file in TASKS.glob("*.py")
        for title in re.findall(r'^@deploy\("(.+)"\)$', file.read_text("utf-8"), re.MULTILINE)
    }
    # Sharing belongs to the stages around it.
    assert parts == {part for value in STAGES.values() for part in value} | {"Sharing"}


def weights(have: float, subject: str = "weights a/b", total: float = 60e9) -> Progress:
    return Progress(subject, "1 of 2 files", have, total)


def test_speed_and_time_left_are_of_all_hosts_together() -> None:
    downloads = Downloads()
    # 40 GB of spark1 were there before: they did not come in this time.
    downloads.take("spark1", weights(40e9), 0.0)
    downloads.take("spark2", weights(0), 0.5)
    assert downloads.speed is None
    assert downloads_text(downloads, 0.5) == "40.0 of 120.0 GB"
    for second in range(10, 110, 10):
        downloads.take("spark1", weights(40e9 + 0.06e9 * second), float(second))
        downloads.take("spark2", weights(0.04e9 * second), second + 0.5)
    assert downloads.speed == pytest.approx(100e6, rel=0.2)
    left_s = (120e9 - downloads.have) / 100e6
    assert downloads.left_s(100.5) == pytest.approx(left_s, rel=0.2)
    # Nobody has told anything new, and time goes on.
    assert downloads.left_s(108.5) == pytest.approx((downloads.left_s(100.5) or 0) - 8)
    assert downloads.left_s(9e9) == 0
    # A source that became slow is told within a minute.
    downloads = Downloads()
    for second in range(0, 100, 10):
        downloads.take("spark1", weights(0.1e9 * second), float(second))
    for second in range(100, 170, 10):
        downloads.take("spark1", weights(10e9 + 1e6 * (second - 100)), float(second))
    assert downloads.speed == pytest.approx(1e6, rel=0.2)


def test_what_takes_long_says_once_a_minute_how_far_it_is() -> None:
    lines: list[str] = []
    clock = Clock()
    view = plain(lines, clock)
    view.event(events.RunStart(["spark1"]))
    view.event(events.StepProgress("Weights | Fetch and verify weights"))
    for second in range(0, 125, 5):
        clock.now = float(second)
        if second % 10 == 0:
            view.line(f"[spark1] {weights(0.1e9 * second)}, from hf.co")
        view.tick()
    assert lines == [
        "weights       1:00  … 6.0 of 60.0 GB, 100 MB/s, about 9 min left",
        "weights       2:00  … 12.0 of 60.0 GB, 100 MB/s, about 8 min left",
    ]


LOG = "~/.local/state/lockstep/deploys/2026-11-25T221300-17.log"


def test_a_picture_in_the_middle_of_the_weights() -> None:
    clock = Clock()
    view = plain([], clock)
    weights = events.StepProgress("Weights | Fetch and verify weights")
    for event in (events.RunStart(["spark-1", "spark-2"]), *step("Base | x", ["spark-1"]), weights):
        view.event(event)
    for second in range(60, 373, 12):
        clock.now = float(second)
        model = "weights mistralai/Mistral-Small-4-119B-2603-NVFP4: 9 of 12 files"
        have = second * 0.08
        view.line(f"    [spark-1] {model}, {have:.2f} of 68.00 GB, from huggingface.co")
        view.line(f"    [spark-2] {model}, {have * 0.9:.2f} of 68.00 GB, from spark-1")
    lines = [line.plain for line in frame(view.course, "spark.py", LOG, 372.0, 80)]
    assert lines[1:6] == [
        "✓ checks   ✓ packages",
        "▸ weights   ██████████░░░░░░░░░░░░░░",
        "  56.5 of 136.0 GB, 152 MB/s, about 9 min left",
        "    spark-1  Mistral-Small-4-119B-2603-NVFP4  29.8 of 68.0 GB  from huggingface…",
        "    spark-2  Mistral-Small-4-119B-2603-NVFP4  26.8 of 68.0 GB  from spark-1",
    ]
    assert lines[-1] == f"all lines: {LOG}"


def test_a_stage_that_ctrl_c_ended_has_no_tick() -> None:
    view = plain([], Clock())
    for event in (events.Ready(), *step("Base | x", ["spark1"]), *step("vLLM | Build", ["spark1"])):
        view.event(event)
    view.report_interrupt()
    view.event(events.Over([good("spark1")]))
    lines = [line.plain for line in frame(view.course, "spark.py", LOG, 0.0, 80)]
    assert lines[1] == "✓ checks   ✓ packages   ■ engine"
