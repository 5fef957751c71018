"""Run a probe as a host runs it: its whole text as one argument, and JSON in and out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockstep import probes


def ask(
    name: str, asked: object, folder: Path | None = None, replace: dict[str, str] | None = None
) -> Any:
    """What a probe answers, with programs of ``folder`` before the machine's own."""
    source = probes.source(name)
    for old, new in (replace or {}).items():
        assert old in source
        source = source.replace(old, new)
    done = subprocess.run(
        [sys.executable, "-c", source, json.dumps(asked)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        check=True,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def program(folder: Path, name: str, text: str) -> Path:
    """A stand-in for a program of the host."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
