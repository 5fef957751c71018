"""One host's state in one round trip: what `lockstep diff` and `lockstep evidence` send.

Standard library only, Python 3.11 or later. The modules travel together as one document on
standard input, with the question; nothing is left on the host.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lockstep.files.programs import imported

_TOP = Path(__file__).resolve().parents[2]

# What one program needs besides what it imports itself: packages without a file of their own.
_PACKAGES = ("lockstep.probes", "lockstep.snapshot")

# Runs on the host: makes modules of the last line of standard input, and asks one of them.
_BOOT = """\
import importlib.abc, importlib.util, json, sys
sent = json.loads(sys.stdin.read().rpartition("\\n")[2])
class Sent(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path, target=None):
        if name in sent["modules"]:
            return importlib.util.spec_from_loader(name, self)
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in sent["modules"])
    def get_source(self, name):
        return sent["modules"][name]
sys.meta_path.insert(0, Sent())
json.dump(importlib.import_module(sent["program"]).take(sent["asked"]), sys.stdout)
"""

#: The command on the host. Isolated, so that nothing in a folder of the operator's is imported.
COMMAND = ("/usr/bin/python3", "-I", "-c", _BOOT)


def document(asked: dict[str, Any], program: str = "snapshot") -> str:
    """What the command reads: its own modules, and the question.

    Args:
        asked: The question.
        program: The module that answers it: "snapshot" or "evidence".
    """
    main = f"lockstep.snapshot.{program}"
    modules = {**dict.fromkeys(_PACKAGES, ""), **_closure(main)}
    return json.dumps({"modules": modules, "program": main, "asked": asked})


def _closure(main: str) -> dict[str, str]:
    """The module and all that it imports of Lockstep: name → text."""
    found: dict[str, str] = {}
    waiting = [main]
    while waiting:
        name = waiting.pop()
        path = _TOP / f"{name.replace('.', '/')}.py"
        if name in found or name in _PACKAGES:
            continue
        if path.is_file():
            found[name] = path.read_text(encoding="utf-8")
        elif path.with_suffix("").is_dir():
            found[name] = ""
        else:
            continue
        waiting += imported(found[name])
    return found
