"""Run a reader as a host runs it: sent with what it imports, and JSON in and out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockstep.files import sent
from lockstep.files.programs import closure


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
    document = json.loads(sent.questions({name: asked}))
    texts = closure("facts", f"facts.{name.partition('.')[0]}")
    for old, new in (replace or {}).items():
        assert any(old in text for text in texts.values())
        texts = {path: text.replace(old, new) for path, text in texts.items()}
    document |= sent.packed(texts)
    done = subprocess.run(
        # A host's own Python has no such site packages to look through.
        [sys.executable, "-S", *sent.COMMAND[1:]],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        check=True,
    )
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
