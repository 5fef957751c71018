"""Steps of a model's unit: a start that is stopped, the end of its engine, and what comes last."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from a_disk import Disk
from onhost_fakes import REPOSITORY, begin_boot, host_root

from lockstep.onhost import __main__
from lockstep.onhost.engine import exec_stop, exec_stop_post, start_check_sigterm
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.system import disk_read_ahead

CHECK = f"""
import sys; sys.path.insert(0, {str(REPOSITORY)!r})
import signal, time
from lockstep.onhost.engine import start_check_sigterm
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
print("blocked", flush=True)
sys.stdin.readline()
start_check_sigterm.exit_check_on_sigterm(["echo", "left behind"], systemd=int(sys.argv[1]))
print("waiting", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("is_early", [False, True], ids=["later", "while it is blocked"])
@pytest.mark.parametrize(
    ("systemd", "code", "output"),
    [(os.getpid(), 0, "left behind\n"), (1, 1, "")],
    ids=["ours", "another"],
)
def test_who_sent_the_signal_decides_how_a_check_of_a_start_ends(systemd, code, output, is_early):
    argv = [sys.executable, "-IS", "-c", CHECK, str(systemd)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as process:
        assert process.stdout.readline() == "blocked\n"
        if is_early:
            process.send_signal(signal.SIGTERM)
        print(file=process.stdin, flush=True)
        if not is_early:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGTERM)
        assert process.wait(180) == code
        assert process.stdout.read().removeprefix("waiting\n") == output


@pytest.mark.parametrize(
    ("word", "is_armed"), [("cluster", True), ("gate", True), ("ready", False), ("minimum", False)]
)
def test_checks_that_start_nothing_afterwards_arm_it_before_anything_else(
    monkeypatch, word, is_armed
):
    steps = []

    def import_module(name):
        assert steps == (["armed"] if is_armed else [])
        return SimpleNamespace(main=lambda argv: 7)

    monkeypatch.setattr(start_check_sigterm, "exit_check_on_sigterm", lambda: steps.append("armed"))
    monkeypatch.setattr(__main__.importlib, "import_module", import_module)
    monkeypatch.setattr(sys, "argv", ["lockstep", word])
    assert __main__.main() == 7


# Ends with 7 when it is asked, unless it is to wait for its clients.
ENGINE = """
import signal, sys, time
signal.signal(signal.SIGTERM, (lambda *_: sys.exit(7)) if sys.argv[1] == "free" else signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("engine", "words", "code"),
    [
        ("free", ("--within", "60"), 7),
        ("waits", ("--within", "0.2"), -signal.SIGKILL),
        # systemd has asked it, so it is not asked again.
        ("free", ("--within", "0.2", "--asked"), -signal.SIGKILL),
    ],
    ids=["ends by itself", "waits for its clients", "was asked"],
)
def test_an_engine_is_asked_to_end_and_then_killed(capsys, engine, words, code):
    argv = [sys.executable, "-IS", "-c", ENGINE, engine]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        assert exec_stop.main([*words, str(process.pid)]) == 0
        assert ("lockstep end: killed" in capsys.readouterr().out) == (code != 7)
        assert process.wait() == code


HOLDER = """
import signal, time
from multiprocessing import shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(shared_memory.SharedMemory(create=True, size=4096).name, flush=True)
time.sleep(60)
"""


def test_shared_memory_of_an_engine_that_is_killed_is_taken_back():
    """By Python's own tracker, which systemd would kill with the rest of the unit."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDER], **streams) as child:
        segment = Path("/dev/shm", child.stdout.readline().strip())
        assert segment.exists()
        # In this process, for systemd is as quick to kill the rest.
        assert not exec_stop.end_process(child.pid, 0.2)
        assert not segment.exists()


def test_a_main_process_that_has_ended_by_itself_is_nothing_to_do():
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert exec_stop.main(["--within", "60", str(child.pid)]) == 0
    # systemd leaves $MAINPID out then.
    assert exec_stop.main(["--within", "60"]) == 0


def test_a_unit_that_ended_while_it_loaded_leaves_nothing(tmp_path):
    paths = host_root(tmp_path / "root", {})
    disk = Disk(paths)
    device = paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("qwen", [device], paths, pytest.fail)
    models_by_boot.record_model_phase(paths, "qwen", models_by_boot.STARTING)
    assert exec_stop_post.main(["ended", "mistral"], paths) == 0
    assert disk.kib == disk_read_ahead.RAISED_KIB
    assert exec_stop_post.main(["ended", "qwen"], paths) == 0
    assert disk.kib == 128 and not paths.read_ahead.exists()
    begin_boot(paths, "2")
    assert models_by_boot.cut_off_boot(paths) is None
