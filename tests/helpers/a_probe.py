"""Run a reader as a host runs it: sent with what it imports, and JSON in and out."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.files import sent
from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import closure

REPOSITORY = Path(__file__).parents[2]

# Modules whose text is another one here come before those that are installed.
_REPLACED = """\
import sys
from importlib.machinery import ModuleSpec
class Replaced:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in texts else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(texts[module.__name__], vars(module))
texts = %r
sys.meta_path.insert(0, Replaced())
"""


@cache
def command() -> list[str]:
    """The command of a host on which the programs of this repository are installed.

    tests/unit/files/test_sent.py has a host that has none. A host's own Python has no such site
    packages to look through as the tests' has.
    """
    compileall.compile_dir(REPOSITORY / "lockstep/onhost", quiet=2)
    return [sys.executable, "-S", "-I", "-c", sent.COMMAND[-1].replace(PROGRAMS, str(REPOSITORY))]


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
    *words, code = command()
    done = subprocess.run(
        [*words, _REPLACED % replaced + code if replaced else code],
        input=sent.questions({name: asked}),
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
