"""Run a probe as a host runs it: sent with what it imports, and JSON in and out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockstep import probes
from lockstep.files import sent


def ask(
    name: str, asked: object, folder: Path | None = None, replace: dict[str, str] | None = None
) -> Any:
    """What a probe answers, with programs of ``folder`` before the machine's own."""
    document = probes.document({name: asked})
    for old, new in (replace or {}).items():
        old, new = json.dumps(old)[1:-1], json.dumps(new)[1:-1]
        assert old in document
        document = document.replace(old, new)
    done = subprocess.run(
        [sys.executable, *sent.COMMAND[1:]],
        input=document,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        check=True,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["faults"] == {}
    return found["answers"][name]


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
