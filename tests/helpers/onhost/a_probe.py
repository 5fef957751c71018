"""Run a reader: JSON in and out, and as a host runs it where that is what a test is about."""

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

from lockstep.files import sent
from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import closure
from lockstep.onhost import facts

REPOSITORY = Path(__file__).parents[3]


@cache
def _command() -> str:
    """What Python runs on a host on which the programs of this repository are installed.

    tests/unit/files/test_sent.py has a host that has none.
    """
    compileall.compile_dir(REPOSITORY / "lockstep/onhost", quiet=2)
    return sent.COMMAND[-1].replace(PROGRAMS, str(REPOSITORY))


def take(
    document: str, folder: Path | None = None, texts: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a host prints that reads a document of `lockstep.files.sent`.

    Args:
        document: The document.
        folder: Where programs are that come before the machine's own.
        texts: Modules → their text where it is another one here.
    """
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return forked_host.run(_command(), environment=environment, text=document, texts=texts)


def ask(
    name: str, asked: object, folder: Path | None = None, replace: dict[str, str] | None = None
) -> Any:
    """What a reader answers, with programs of ``folder`` before the machine's own.

    Args:
        name: The reader.
        asked: Its question.
        folder: Where programs are.
        replace: Text of the modules that are sent → what it is here; a process for itself has them.
    """
    if replace:
        found = _of_others(name, asked, folder, replace)
    else:
        with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
            found = json.loads(json.dumps(facts.take({name: asked})))
    assert found["faults"] == {}
    return found["answers"].get(name, found["facts"])


def _of_others(name: str, asked: object, folder: Path | None, replace: dict[str, str]) -> Any:
    texts = closure("facts", f"facts.{name.partition('.')[0]}")
    changed = dict(texts)
    for old, new in replace.items():
        assert any(old in text for text in changed.values())
        changed = {path: text.replace(old, new) for path, text in changed.items()}
    replaced = {
        path.removesuffix(".py").replace("/", "."): text
        for path, text in changed.items()
        if text != texts[path]
    }
    done = take(sent.questions({name: asked}), folder, replaced)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
