"""Runs a solution on its cases inside the sandbox. Standard library only; started by `-c`.

Reads {"solution", "helper", "calls", "case_s", "memory", "nobody"} from standard input, and writes
one JSON line per case: {"value": …} or {"error": "TypeName: words"}. What a case should give stays
outside: a solution cannot write a score, only answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
from typing import Any

# Loading a module's worth of Python takes no more, and no exercise counts that far.
CPU_S = 40
FILES = 16


def limit(memory: int) -> None:
    """Hard limits, so that nothing below can raise them again."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: CPU_S,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: FILES,
        # No process and no thread beside this one: a fork bomb does not begin.
        resource.RLIMIT_NPROC: 0,
    }
    for name, most in limits.items():
        resource.setrlimit(name, (most, most))


def too_long(number: int, frame: object) -> None:
    raise TimeoutError("no answer in time")


def run(asked: dict[str, Any], answer: int) -> None:
    def tell(value: dict[str, Any]) -> None:
        os.write(answer, json.dumps(value).encode() + b"\n")

    space: dict[str, Any] = {"__name__": "solution"}
    fault = ""
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, asked["case_s"])
    try:
        exec(compile(asked["solution"], "solution.py", "exec"), space)
        exec(compile(asked["helper"], "helper.py", "exec"), space)
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"[:200]
    for call in asked["calls"]:
        signal.setitimer(signal.ITIMER_PROF, asked["case_s"])
        try:
            if fault:
                raise ImportError(fault)
            value = eval(compile(call, "case", "eval"), space)
            tell({"value": value})
        except BaseException as error:
            tell({"error": f"{type(error).__name__}: {error}"[:200]})
    signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    asked = json.load(sys.stdin)
    # What a solution prints goes nowhere; answers have a way of their own.
    answer = os.dup(1)
    for number in (0, 1, 2):
        os.close(number)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(asked["nobody"])
        os.setuid(asked["nobody"])
    limit(asked["memory"])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(asked, answer)


if __name__ == "__main__":
    main()
    # No exit handler of a solution runs.
    os._exit(0)
