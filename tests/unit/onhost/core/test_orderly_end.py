"""The checks of a unit's start end well when systemd stops the unit, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from onhost_fakes import ONHOST, REPOSITORY

CODE = f"""
import sys; sys.path.insert(0, {str(REPOSITORY)!r})
import time
from lockstep.onhost.core import orderly_end
orderly_end.end_when_stopped(int(sys.argv[1]))
orderly_end.leave_behind(["echo", "left behind"])
print("waiting", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("systemd", "code", "left"),
    [(os.getpid(), 0, "left behind\n"), (1, 1, "")],
    ids=["ours", "another"],
)
def test_who_sent_the_signal_decides(systemd: int, code: int, left: str) -> None:
    argv = [sys.executable, "-c", CODE, str(systemd)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == code
        assert process.stdout.read() == left


@pytest.mark.parametrize(
    "program", ["engine/ready.py", "switching/gate.py", "cluster/rank_gate.py"]
)
def test_the_checks_of_a_start_arm_it_before_anything_else(program: str) -> None:
    text = (ONHOST / program).read_text()
    assert text.split('if __name__ == "__main__":\n')[1].startswith(
        "    orderly_end.end_when_stopped()\n    sys.exit("
    )
