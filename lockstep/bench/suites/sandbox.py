"""Runs what a model wrote where it can do no harm: no network, nothing to write, one process.

bubblewrap gives an empty root with the interpreter read-only in it, namespaces of its own and no
device; `sandboxed.py` limits memory, time, files and processes before the first foreign line. A
plain user needs user namespaces for it. Started by root it becomes `nobody` inside, because limits
on processes do not hold for root.
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
# Of processor time for one case, so that a busy machine fails no solution.
CASE_S = 2.0
# Of real time for one solution on all of its cases: what sleeps is ended too.
WALL_S = 60.0
# Answers are numbers and short lists; whoever writes more is cut off.
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
    """Code of a model cannot be run safely on this machine."""


@dataclass(frozen=True)
class Answer:
    """What one case gave: a value, or the error that it raised; neither: nothing in time."""

    value: Any = None
    error: str | None = None

    def gives(self, value: Any) -> bool:
        """Whether it is this value; 1 and 1.0 are the same, 1 and True are not."""
        return self.error is None and _same(self.value, value)

    def raises(self, name: str) -> bool:
        """Whether it is an error of this type."""
        return self.error is not None and self.error.partition(":")[0] == name


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def run(solution: str, calls: Sequence[str], helper: str = "") -> list[Answer]:
    """Each call's answer, with the definitions of ``solution`` and then of ``helper``.

    Raises:
        SandboxError: there is no sandbox on this machine.
    """
    asked = {
        "solution": solution,
        "helper": helper,
        "calls": list(calls),
        "case_s": CASE_S,
        "memory": MEMORY,
        "nobody": NOBODY,
    }
    lines = _output(json.dumps(asked).encode()).splitlines()
    found = [_answer(line) for line in lines[: len(calls)]]
    return found + [Answer(error="Ended: no answer")] * (len(calls) - len(found))


def check() -> None:
    """Refuse a machine whose sandbox would let something out.

    Raises:
        SandboxError: what is missing, and how to get it.
    """
    found = run(_PROBE, [f"tried({name})" for name in _PROBES])
    out = [name for name, answer in zip(_PROBES, found, strict=True) if answer.value == "done"]
    silent = [answer.error for answer in found if answer.error]
    if out or silent:
        raise SandboxError(
            "the sandbox for the model's code does not hold",
            found=f"possible inside: {', '.join(out)}" if out else str(silent[0]),
            remedy="Measure the other suites with --suite.",
        )


def _answer(line: bytes) -> Answer:
    try:
        found = json.loads(line)
        return Answer(found.get("value"), found.get("error"))
    except (ValueError, AttributeError, RecursionError):
        return Answer(error="Ended: not an answer")


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
    source = Path(__file__).with_name("sandboxed.py").read_text(encoding="utf-8")
    words += ["--remount-ro", "/", "--chdir", "/"]
    return [*words, "--", str(python), "-I", "-S", "-B", "-c", source]


def _interpreter() -> tuple[Path, Path]:
    """Python, and the folder that holds all of it: this one's, if `nobody` may read it."""
    prefix = Path(sys.base_prefix).resolve()
    readable = all(folder.stat().st_mode & 0o5 == 0o5 for folder in (prefix, *prefix.parents))
    system = Path("/usr/bin/python3")
    if os.geteuid() == 0 and not readable and system.exists():
        return system, Path("/usr")
    return Path(sys.executable).resolve(), prefix


def _output(asked: bytes) -> bytes:
    with subprocess.Popen(
        _command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={},
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        # The end of bubblewrap is the end of everything in its namespace.
        alarm = threading.Timer(WALL_S, process.kill)
        alarm.start()
        try:
            process.stdin.write(asked)
            process.stdin.close()
            answer = process.stdout.read(MOST_ANSWER)
        except BrokenPipeError:
            answer = b""
        finally:
            process.kill()
            alarm.cancel()
        said = process.stderr.read(4096).decode(errors="replace").strip()
    if not answer and said.startswith("bwrap:"):
        raise SandboxError(
            "the sandbox for the model's code does not start",
            found=said.splitlines()[0],
            remedy="Allow user namespaces (on Ubuntu 24.04 an AppArmor profile for bwrap, or "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or measure the other "
            "suites with --suite.",
        )
    return answer
