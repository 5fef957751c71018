"""Run a reader with JSON in and out, also as a host runs it for tests of exactly that."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from lockstep.files import remote_exec
from lockstep.onhost import facts


def snapshot_text(questions: dict[str, Any]) -> str:
    """The answers of this machine, by the program as a host runs it."""
    # A password that sudo did not need is left before them.
    text = f"unused\n{remote_exec.readers_input(questions)}"
    argv = [sys.executable, *remote_exec.COMMAND[1:]]
    result = subprocess.run(argv, input=text, capture_output=True, text=True)
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
