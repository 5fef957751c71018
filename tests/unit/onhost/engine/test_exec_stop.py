"""An engine that is asked to end: by itself where it can, killed where it waits for its clients."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.onhost.engine import exec_stop

# Ends with 7 when it is asked, unless it is to wait for its clients.
ENGINE = """
import signal, sys, time
signal.signal(signal.SIGTERM, (lambda *_: sys.exit(7)) if sys.argv[1] == "free" else signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-IS", "-c", ENGINE, request.param]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
        process.kill()


@pytest.fixture
def end_program(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The output of the program, which must end well."""

    def run(*words: str) -> str:
        assert exec_stop.main(list(words)) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("engine", ["free"], indirect=True)
def test_an_engine_that_ends_when_it_is_asked_is_left_alone(
    engine: subprocess.Popen[str], end_program: Callable[..., str]
) -> None:
    assert end_program("--within", "60", str(engine.pid)) == ""
    assert engine.wait() == 7


@pytest.mark.parametrize("engine", ["waits"], indirect=True)
def test_an_engine_that_waits_for_its_clients_is_killed(
    engine: subprocess.Popen[str], end_program: Callable[..., str]
) -> None:
    output = end_program("--within", "0.2", str(engine.pid))
    assert output.startswith("lockstep end: killed, for it had not ended 0.2 s after it was asked")
    assert engine.wait() == -signal.SIGKILL


HOLDER = """
import signal, time
from multiprocessing import shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(shared_memory.SharedMemory(create=True, size=4096).name, flush=True)
time.sleep(60)
"""


def test_shared_memory_of_an_engine_that_is_killed_is_taken_back() -> None:
    """By Python's own tracker, which systemd would kill with the rest of the unit."""
    argv = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        segment = Path("/dev/shm", child.stdout.readline().strip())
        assert segment.exists()
        # In this process, for systemd is as quick to kill the rest.
        assert not exec_stop.end_process(child.pid, 0.2)
        assert not segment.exists()


@pytest.mark.parametrize("engine", ["free"], indirect=True)
def test_an_engine_that_systemd_has_asked_is_not_asked_again(
    engine: subprocess.Popen[str], end_program: Callable[..., str]
) -> None:
    assert "killed" in end_program("--within", "0.2", "--asked", str(engine.pid))
    assert engine.wait() == -signal.SIGKILL


def test_a_main_process_that_has_ended_by_itself_is_nothing_to_do(
    end_program: Callable[..., str],
) -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert end_program("--within", "60", str(child.pid)) == ""
    # systemd leaves $MAINPID out then.
    assert end_program("--within", "60") == ""
