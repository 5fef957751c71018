"""A deploy as a child process: its events are answered, its lines kept, and its end is orderly."""

import io
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import a_run
import pytest

from lockstep.deploy import child, events


class RecordingView:
    """A view that records its calls, and gives the answers of a test."""

    def __init__(self, answer: Any = None, interrupt_at: str = "") -> None:
        self.lines: list[str] = []
        self.events: list[events.Event] = []
        self.interrupts = 0
        self._answer, self._interrupt_at = answer, interrupt_at

    def line(self, text: str) -> None:
        self.lines.append(text)
        if text == self._interrupt_at:
            # As a terminal does it: in the middle of whatever is under way.
            threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()

    def event(self, event):
        self.events.append(event)
        return self._answer

    def tick(self) -> None:
        pass

    def report_interrupt(self) -> None:
        self.interrupts += 1


def follow(folder: Path, view: RecordingView, *script: Any) -> tuple[tuple[int, bool], str]:
    log = io.StringIO()
    outcome = child.follow(a_run.argv(folder, script), folder, dict(os.environ), log, view)
    return outcome, log.getvalue()


def test_lines_go_into_the_log_as_people_read_them_and_events_to_the_view(tmp_path: Path) -> None:
    view = RecordingView(answer=True)
    outcome, log = follow(
        *(tmp_path, view, events.RunStart(["spark1"]), "\x1b[31m    [spark1] red\x1b[0m"),
        *("0%\r50%\r100%", "    [spark1] lockstep still: qwen loads, 30 s", events.Ready(), 3),
    )
    assert outcome == (3, False)
    assert view.events == [events.RunStart(["spark1"]), events.Ready()]
    beat = "    [spark1] lockstep still: qwen loads, 30 s"
    assert view.lines == ["    [spark1] red", "100%", beat, "answered true"]
    assert re.fullmatch(r"(\d\d:\d\d:\d\d .+\n){4}", log)
    assert "     [spark1] qwen loads, 30 s\n" in log


def test_a_password_goes_to_the_deploy_alone_and_no_child_is_awaited(tmp_path: Path) -> None:
    view = RecordingView(answer='a "secret"')
    follow(tmp_path, view, events.Asks("sudo password: "))
    assert view.lines == ['answered "a \\"secret\\""']
    assert view.events == [events.Asks("sudo password: ")]
    view = RecordingView()
    outcome, _ = follow(tmp_path, view, "LEAVE A CHILD", "said", 0)
    assert outcome == (0, False)
    assert view.lines == ["said"]


def test_ctrl_c_ends_the_deploy_in_order_or_soon(tmp_path, monkeypatch) -> None:
    view = RecordingView(interrupt_at="go on")
    outcome, log = follow(tmp_path, view, "go on", "WAIT")
    assert outcome == (0, True)
    assert view.interrupts == 1
    assert "Exiting upon user request!" in log
    monkeypatch.setattr(child, "PATIENCE_S", 0.5)
    view = RecordingView(interrupt_at="go on")
    outcome, _ = follow(tmp_path, view, "DEAF", "go on", "WAIT", "WAIT")
    assert outcome == (-signal.SIGKILL, True)


def test_a_view_that_breaks_leaves_no_deploy(tmp_path: Path) -> None:
    class BrokenView(RecordingView):
        def line(self, text: str) -> None:
            self.pid = int(text)
            raise SystemExit

    view = BrokenView()
    program = a_run.argv(tmp_path, ["WAIT"])
    file = Path(program[1])
    file.write_text(
        f"import os\nprint(os.getpid(), flush=True)\n{file.read_text('utf-8')}", "utf-8"
    )
    with pytest.raises(SystemExit):
        child.follow(program, tmp_path, dict(os.environ), io.StringIO(), view)
    with pytest.raises(ProcessLookupError):
        os.kill(view.pid, 0)
