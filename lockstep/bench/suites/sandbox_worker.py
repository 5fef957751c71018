"""The program inside the sandbox: runs a solution on its cases. Standard library only, by `-c`.

It reads {"solution", "helper", "calls", "case_s", "memory", "nobody"} from standard input, and
writes one JSON line per case: {"value": …} or {"error": "TypeName: words"}. The expected values
stay outside, so a solution can write answers but no score.
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

# Loading Python takes no more, and no exercise has that many cases.
CPU_S = 40
FILES = 16


def limit(memory: int) -> None:
    """Set hard limits, so that the solution cannot raise them again."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: CPU_S,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: FILES,
        # No process and no thread beside this one, so a fork bomb does not begin.
        resource.RLIMIT_NPROC: 0,
    }
    for name, most in limits.items():
        resource.setrlimit(name, (most, most))


def too_long(number: int, frame: object) -> None:
    raise TimeoutError("no answer in time")


def run(question: dict[str, Any], answer: int) -> None:
    def tell(value: dict[str, Any]) -> None:
        os.write(answer, json.dumps(value).encode() + b"\n")

    space: dict[str, Any] = {"__name__": "solution"}
    fault = ""
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, question["case_s"])
    try:
        exec(compile(question["solution"], "solution.py", "exec"), space)
        exec(compile(question["helper"], "helper.py", "exec"), space)
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"[:200]
    for call in question["calls"]:
        signal.setitimer(signal.ITIMER_PROF, question["case_s"])
        try:
            if fault:
                raise ImportError(fault)
            value = eval(compile(call, "case", "eval"), space)
            tell({"value": value})
        except BaseException as error:
            tell({"error": f"{type(error).__name__}: {error}"[:200]})
    signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    question = json.load(sys.stdin)
    # Prints of a solution go nowhere, because answers use a descriptor of their own.
    answer = os.dup(1)
    for number in (0, 1, 2):
        os.close(number)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(question["nobody"])
        os.setuid(question["nobody"])
    limit(question["memory"])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(question, answer)


if __name__ == "__main__":
    main()
    # This skips a solution's exit handlers.
    os._exit(0)
