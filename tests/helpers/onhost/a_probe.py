"""Run a reader with JSON in and out, also as a host runs it for tests of exactly that."""

import compileall
import json
import os
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import forked_host

from lockstep.files import remote_exec
from lockstep.files.managed_file import PROGRAMS
from lockstep.onhost import facts

REPOSITORY = Path(__file__).parents[3]


@cache
def _command() -> str:
    """The command that Python runs on a host with the programs of this repository.

    tests/unit/files/test_remote_exec.py has a host without them.
    """
    compileall.compile_dir(REPOSITORY / "lockstep/onhost", quiet=2)
    return remote_exec.COMMAND[-1].replace(PROGRAMS, str(REPOSITORY))


def snapshot_text(questions: dict[str, Any]) -> str:
    """The answers of this machine, by the program as a host runs it."""
    # A password that sudo did not need is left before them.
    result = forked_host.run(_command(), text=f"unused\n{remote_exec.readers_input(questions)}")
    assert result.returncode == 0, result.stderr
    return result.stdout


def ask(name: str, question: object, folder: Path | None = None) -> Any:
    """The answer of a reader, with programs of `folder` before the machine's own."""
    with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
        answer = json.loads(json.dumps(facts.answer_request({name: question})))
    assert answer["faults"] == {}
    return answer["answers"].get(name, answer["facts"])


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
