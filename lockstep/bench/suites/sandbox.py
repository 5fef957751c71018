"""A sandbox for a model's code: no network, nothing writable, one process.

bubblewrap gives an empty root with the interpreter read-only in it, namespaces of its own and no
device. `sandbox_worker.py` limits memory, time, files and processes before the first foreign line.
A plain user needs user namespaces for it. If root starts the sandbox, it becomes `nobody` inside,
because limits on processes do not hold for root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.core.errors import LockstepError

NOBODY = 65534
MEMORY = 512 * 2**20
# Seconds of processor time for one case, so that a busy machine fails no solution.
CASE_S = 2.0
# Seconds of real time for one solution on all of its cases. This ends sleeping code too.
WALL_S = 60.0
# Bytes. Answers are numbers and short lists, so longer output is cut off.
MOST_ANSWER = 2**20

_PROBE = """
import os, socket, subprocess, threading
def tried(what):
    try:
        what()
    except Exception as error:
        return type(error).__name__
    return "done"
def net(): socket.create_connection(("1.1.1.1", 53), 1)
def write(): open("/x", "w").write("x")
def usr(): open("/usr/x", "w").write("x")
def folder(): os.mkdir("/d")
def fork(): subprocess.run(["/usr/bin/true"])
def thread(): threading.Thread(target=print).start()
"""
_PROBES = ("net", "write", "usr", "folder", "fork", "thread")


class SandboxError(LockstepError):
    """An error: the machine cannot run a model's code safely."""


@dataclass(frozen=True)
class CaseAnswer:
    """The outcome of one case: a value, or the error raised; neither if nothing came in time."""

    value: Any = None
    error: str | None = None

    def gives(self, value: Any) -> bool:
        """Tell whether the answer is this value; 1 and 1.0 are the same, 1 and True are not."""
        return self.error is None and _is_same(self.value, value)

    def raises(self, name: str) -> bool:
        """Tell whether the answer is an error of this type."""
        return self.error is not None and self.error.partition(":")[0] == name


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _is_same(first[key], second[key]) for key in first
        )
    return bool(first == second)


def run(solution: str, calls: Sequence[str], helper: str = "") -> list[CaseAnswer]:
    """Run each call with the definitions of ``solution`` and then of ``helper``.

    Raises:
        SandboxError: this machine has no sandbox.
    """
    question = {
        "solution": solution,
        "helper": helper,
        "calls": list(calls),
        "case_s": CASE_S,
        "memory": MEMORY,
        "nobody": NOBODY,
    }
    lines = _output(json.dumps(question).encode()).splitlines()
    answers = [_answer(line) for line in lines[: len(calls)]]
    return answers + [CaseAnswer(error="Ended: no answer")] * (len(calls) - len(answers))


def check() -> None:
    """Refuse a machine whose sandbox would let something out.

    Raises:
        SandboxError: with the missing part, and the way to get it.
    """
    answers = run(_PROBE, [f"tried({name})" for name in _PROBES])
    out = [name for name, answer in zip(_PROBES, answers, strict=True) if answer.value == "done"]
    silent = [answer.error for answer in answers if answer.error]
    if out or silent:
        raise SandboxError(
            "the sandbox for the model's code does not hold",
            found=f"possible inside: {', '.join(out)}" if out else str(silent[0]),
            remedy="Measure the other suites with --suite.",
        )


def _answer(line: bytes) -> CaseAnswer:
    try:
        document = json.loads(line)
        return CaseAnswer(document.get("value"), document.get("error"))
    except (ValueError, AttributeError, RecursionError):
        return CaseAnswer(error="Ended: not an answer")


def _command() -> list[str]:
    program = shutil.which("bwrap")
    if program is None or not sys.platform.startswith("linux"):
        raise SandboxError(
            "the model's code can only be run in a sandbox",
            found="no bubblewrap on this machine",
            remedy="On Linux `apt-get install bubblewrap`; elsewhere measure the other suites with "
            "--suite.",
        )
    python, prefix = _interpreter()
    words = [program, "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
    if os.geteuid() == 0:
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    for folder in dict.fromkeys((Path("/usr"), prefix)):
        words += ["--ro-bind", str(folder), str(folder)]
    for name in ("lib", "lib64", "bin"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    source = Path(__file__).with_name("sandbox_worker.py").read_text(encoding="utf-8")
    words += ["--remount-ro", "/", "--chdir", "/"]
    return [*words, "--", str(python), "-I", "-S", "-B", "-c", source]


def _interpreter() -> tuple[Path, Path]:
    """Return a Python and the folder that holds all of it: this Python, if `nobody` may read it."""
    prefix = Path(sys.base_prefix).resolve()
    readable = all(folder.stat().st_mode & 0o5 == 0o5 for folder in (prefix, *prefix.parents))
    system = Path("/usr/bin/python3")
    if os.geteuid() == 0 and not readable and system.exists():
        return system, Path("/usr")
    return Path(sys.executable).resolve(), prefix


def _output(document: bytes) -> bytes:
    with subprocess.Popen(
        _command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={},
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        # When bubblewrap ends, everything in its namespace ends.
        alarm = threading.Timer(WALL_S, process.kill)
        alarm.start()
        try:
            process.stdin.write(document)
            process.stdin.close()
            answer = process.stdout.read(MOST_ANSWER)
        except BrokenPipeError:
            answer = b""
        finally:
            process.kill()
            alarm.cancel()
        error_text = process.stderr.read(4096).decode(errors="replace").strip()
    if not answer and error_text.startswith("bwrap:"):
        raise SandboxError(
            "the sandbox for the model's code does not start",
            found=error_text.splitlines()[0],
            remedy="Allow user namespaces (on Ubuntu 24.04 an AppArmor profile for bwrap, or "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or measure the other "
            "suites with --suite.",
        )
    return answer
