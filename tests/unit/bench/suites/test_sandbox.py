"""The sandbox for what models write, and the exercises that run in it."""

import socket
import time
from pathlib import Path

import pytest
from a_probe import program

from lockstep.bench.suites import sandbox

pytestmark = pytest.mark.slow


def test_values_and_errors_come_back_in_order() -> None:
    answers = sandbox.run("def f(x): return [x, 1 // x]", ["f(1)", "f(0)", "g(1)", "f(1)"])
    assert answers[0].gives([1, 1]) and not answers[0].gives([1, True, 2])
    assert answers[1].raises("ZeroDivisionError")
    assert answers[2].raises("NameError")
    assert answers[3].gives([1, 1])
    assert not sandbox.run("", ["[True]"])[0].gives([1])
    assert sandbox.run("", ["{'a': 1.0}"])[0].gives({"a": 1})


def test_a_solution_that_is_no_python_fails_every_case() -> None:
    answers = sandbox.run("def f(:", ["f(1)", "1"])
    assert all(answer.raises("ImportError") for answer in answers)


def test_a_solution_can_forge_no_answer_and_does_not_know_what_a_case_gives() -> None:
    forgery = 'import os, sys\nprint(\'{"value": 42}\')\nos.write(2, b"x")'
    assert not sandbox.run(forgery, ["1"])[0].gives(42)
    nosy = "import sys\ndef f(x):\n    return [str(sys._getframe(1).f_locals.keys())]"
    output = str(sandbox.run(nosy, ["f(1)"])[0])
    assert "gives" not in output and "raises" not in output


# What it tries, and what stops it.
MALICIOUS = {
    "network": (
        'import socket\nsocket.create_connection(("127.0.0.1", PORT), 2)',
        "ConnectionRefusedError",
    ),
    "fork bomb": ("import os\nwhile True: os.fork()", "BlockingIOError"),
    "program": (
        'import subprocess\nsubprocess.run(["/usr/bin/touch", "MARK"], check=True)',
        "BlockingIOError",
    ),
    "write outside": ('open("MARK", "w").write("x")', "FileNotFoundError"),
    "write to the root": ('import os\nos.mkdir("/x")', "Read-only file system"),
    "read a secret": ('open("/etc/shadow").read()', "FileNotFoundError"),
    "other processes": ("import os\nos.kill(1, 9)", "PermissionError"),
    "huge memory": ("x = bytearray(2**30)", "MemoryError"),
    "become root": ("import os\nos.setuid(0)", "PermissionError"),
    "leave the interpreter": ("import os\nos._exit(0)", "Ended"),
    "close everything": ("import os\nos.closerange(0, 256)", "Ended"),
}


@pytest.mark.parametrize("name", MALICIOUS)
def test_a_malicious_solution_does_no_harm(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    tmp_path.chmod(0o777)
    code, stopped_by = MALICIOUS[name]
    earlier_entries = set(Path("/").iterdir())
    # Somebody listens there: only the sandbox refuses.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        solution = code.replace("MARK", str(mark)).replace("PORT", port)
        answer = sandbox.run(solution, ['"survived"'])[0]
    assert answer.value is None
    assert stopped_by in str(answer.error)
    assert not mark.exists()
    assert set(Path("/").iterdir()) == earlier_entries


def test_an_endless_loop_ends_and_costs_its_own_case_only() -> None:
    slow = "def f(x):\n    while x: pass\n    return x"
    answers = sandbox.run(slow, ["f(1)", "f(0)"])
    assert answers[0].raises("TimeoutError")
    assert answers[1].gives(0)


def test_a_loop_that_cannot_be_interrupted_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    assert sandbox.run("", ["1"])[0].gives(1)
    # As slow as this machine is just now.
    monkeypatch.setattr(sandbox, "WALL_S", 3 + 10 * (time.monotonic() - began))
    # An alarm is not looked at before this has ended, hours from now.
    stubborn = "def f():\n    return sum(range(10**13))"
    answers = sandbox.run(stubborn, ["1", "f()", "2"])
    assert answers[0].gives(1)
    assert [answer.error for answer in answers[1:]] == ["Ended: no answer"] * 2


def test_a_flood_of_answers_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_ANSWER", 1000)
    answers = sandbox.run("", ["'x' * 5000", "1"])
    assert answers[0].raises("Ended")


@pytest.mark.parametrize("remedy", ["apt-get install bubblewrap", "Allow user namespaces"])
def test_without_bubblewrap_or_user_namespaces_the_remedy_is_named(tmp_path, monkeypatch, remedy):
    if "namespaces" in remedy:
        program(tmp_path, "bwrap", "echo 'bwrap: setting up uid map: denied' >&2; exit 1")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sandbox.SandboxError, match=remedy):
        sandbox.run("", ["1"])
