"""The screen of a deploy: its pictures, and a terminal on which one runs to its end."""

import io

from a_run import Clock, good, plain, step
from rich.console import Console

from lockstep.deploy import events
from lockstep.deploy.course import Course
from lockstep.deploy.screen import Screen, frame

LOG = "~/.local/state/lockstep/deploys/2026-11-25T221300-17.log"


def fetching() -> Course:
    """A run of two Sparks in the middle of its weights, six minutes old."""
    course = Course(0.0)
    clock = Clock()
    console = Console(file=io.StringIO())
    view = Screen(course, console, agree=bool, password=lambda prompt: None, clock=clock)
    view.event(events.RunStart(["spark-1", "spark-2"]))
    for name in ("Preflight | x", "Base | x", "vLLM | x", "Images | x"):
        for event in step(name, ["spark-1"]):
            view.event(event)
    view.event(events.StepProgress("Weights | Fetch and verify weights"))
    for second in range(60, 373, 12):
        clock.now = float(second)
        model = "weights mistralai/Mistral-Small-4-119B-2603-NVFP4: 9 of 12 files"
        have = second * 0.08
        view.line(f"    [spark-1] {model}, {have:.2f} of 68.00 GB, from huggingface.co")
        view.line(f"    [spark-2] {model}, {have * 0.9:.2f} of 68.00 GB, from spark-1")
    return course


WIDE = """\
Lockstep · inventories/spark.py · 2 Sparks                                  6:12
✓ checks   ✓ packages   ✓ engine   ✓ images
▸ weights   ██████████░░░░░░░░░░░░░░
  56.5 of 136.0 GB, 152 MB/s, about 9 min left
    spark-1  Mistral-Small-4-119B-2603-NVFP4  29.8 of 68.0 GB  from huggingface…
    spark-2  Mistral-Small-4-119B-2603-NVFP4  26.8 of 68.0 GB  from spark-1
· services   · gateway   · open webui   · monitoring   · read back
all lines: ~/.local/state/lockstep/deploys/2026-11-25T221300-17.log"""


def test_a_picture_in_the_middle_of_the_weights() -> None:
    lines = frame(fetching(), "inventories/spark.py", LOG, 372.0, 80)
    assert "\n".join(line.plain.rstrip() for line in lines) == WIDE
    assert "Mistral-Small-4-119B-2603-…" in str(frame(fetching(), "spark.py", LOG, 372.0, 40))


def test_a_stage_that_ctrl_c_ended_has_no_tick() -> None:
    view = plain([], Clock())
    for event in (events.Ready(), *step("Base | x", ["spark1"]), *step("vLLM | Build", ["spark1"])):
        view.event(event)
    view.report_interrupt()
    view.event(events.Over([good("spark1")]))
    lines = [line.plain for line in frame(view.course, "spark.py", LOG, 0.0, 80)]
    assert lines[1] == "✓ checks   ✓ packages   ■ engine"
