"""The screen of a deploy: its pictures."""

from a_run import Clock, good, plain, step

from lockstep.deploy import events
from lockstep.deploy.screen import frame

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
