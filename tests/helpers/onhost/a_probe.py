"""Run a reader with JSON in and out, also as a host runs it for tests of exactly that."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import forked_host

from lockstep.files import remote_exec
from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import modules_with_imports
from lockstep.onhost import facts

REPOSITORY = Path(__file__).parents[3]


@cache
def _command() -> str:
    """The command that Python runs on a host with the programs of this repository.

    tests/unit/files/test_remote_exec.py has a host without them.
    """
    compileall.compile_dir(REPOSITORY / "lockstep/onhost", quiet=2)
    return remote_exec.COMMAND[-1].replace(PROGRAMS, str(REPOSITORY))


def take(
    document: str, folder: Path | None = None, texts: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The output of a host that reads a document of `lockstep.files.remote_exec`.

    Programs of `folder` precede the machine's own; `texts` are those of modules that differ here.
    """
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return forked_host.run(_command(), environment=environment, text=document, texts=texts)


def ask(
    name: str, question: object, folder: Path | None = None, replace: dict[str, str] | None = None
) -> Any:
    """The answer of a reader, with programs of `folder` before the machine's own.

    `replace` is text in the modules that are sent → its replacement, for a process of its own.
    """
    if replace:
        answer = _of_others(name, question, folder, replace)
    else:
        with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
            answer = json.loads(json.dumps(facts.answer_request({name: question})))
    assert answer["faults"] == {}
    return answer["answers"].get(name, answer["facts"])


def _of_others(name: str, question: object, folder: Path | None, replace: dict[str, str]) -> Any:
    texts = modules_with_imports("facts", f"facts.{name.partition('.')[0]}")
    new_texts = dict(texts)
    for old, new in replace.items():
        assert any(old in text for text in new_texts.values())
        new_texts = {path: text.replace(old, new) for path, text in new_texts.items()}
    replacements = {
        path.removesuffix(".py").replace("/", "."): text
        for path, text in new_texts.items()
        if text != texts[path]
    }
    result = take(remote_exec.readers_input({name: question}), folder, replacements)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
