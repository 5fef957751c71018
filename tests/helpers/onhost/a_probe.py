"""Run a reader as a host runs it: sent with what it imports, and JSON in and out."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import forked_host

from lockstep.files import sent
from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import closure

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
        replace: Text of the modules that are sent → what it is here.
    """
    texts = closure("facts", f"facts.{name.partition('.')[0]}")
    changed = dict(texts)
    for old, new in (replace or {}).items():
        assert any(old in text for text in changed.values())
        changed = {path: text.replace(old, new) for path, text in changed.items()}
    replaced = {
        path.removesuffix(".py").replace("/", "."): text
        for path, text in changed.items()
        if text != texts[path]
    }
    done = take(sent.questions({name: asked}), folder, replaced)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["faults"] == {}
    return found["answers"].get(name, found["facts"])


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
