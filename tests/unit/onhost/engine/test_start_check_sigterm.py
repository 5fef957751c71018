"""The checks of a unit's start end well when systemd stops the unit, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from onhost_fakes import REPOSITORY

from lockstep.onhost import __main__
from lockstep.onhost.engine import start_check_sigterm

CODE = f"""
import sys; sys.path.insert(0, {str(REPOSITORY)!r})
import time
from lockstep.onhost.engine import start_check_sigterm
start_check_sigterm.exit_check_on_sigterm(int(sys.argv[1]))
start_check_sigterm.register_program_after_stop(["echo", "left behind"])
print("waiting", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("systemd", "code", "output"),
    [(os.getpid(), 0, "left behind\n"), (1, 1, "")],
    ids=["ours", "another"],
)
def test_who_sent_the_signal_decides(systemd: int, code: int, output: str) -> None:
    argv = [sys.executable, "-IS", "-c", CODE, str(systemd)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == code
        assert process.stdout.read() == output


@pytest.mark.parametrize(
    ("word", "is_armed"), [("cluster", True), ("gate", True), ("ready", True), ("minimum", False)]
)
def test_the_checks_of_a_start_arm_it_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, word: str, is_armed: bool
) -> None:
    steps: list[str] = []

    def import_module(name: str) -> SimpleNamespace:
        steps.append("imported")
        return SimpleNamespace(main=lambda argv: 0)

    monkeypatch.setattr(start_check_sigterm, "exit_check_on_sigterm", lambda: steps.append("armed"))
    monkeypatch.setattr(__main__.importlib, "import_module", import_module)
    monkeypatch.setattr(sys, "argv", ["lockstep", word])
    assert __main__.main() == 0
    assert steps == (["armed", "imported"] if is_armed else ["imported"])
