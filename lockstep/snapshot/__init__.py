"""One host's state in one round trip: what `lockstep diff` and `lockstep evidence` send.

Standard library only, Python 3.11 or later. The modules travel together as one document on
standard input, with the question; nothing is left on the host.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

# Module name on the host → where its text is here, in the order in which one needs the other.
_MODULES = {
    **{
        name: ("lockstep.onhost", name)
        for name in (
            *("clusters", "need", "common", "content", "docker_api", "weights_spec"),
            "weights_state",
        )
    },
    "lockstep": None,
    "lockstep.probes": None,
    "lockstep.probes.engines": ("lockstep.probes", "engines"),
    "lockstep.snapshot": None,
    **{
        f"lockstep.snapshot.{name}": ("lockstep.snapshot", name)
        for name in (
            *("collected", "accounts", "docker_state", "files", "machine", "network"),
            *("packages", "units", "venvs", "weights", "snapshot"),
        )
    },
}
# What one program needs besides; its own module last.
_MORE = {
    "snapshot": {},
    "evidence": {
        **{
            name: ("lockstep.onhost", name)
            for name in ("apt_turn", "engine", "units", "load", "technical", "floor")
        },
        **{
            f"lockstep.probes.{name}": ("lockstep.probes", name)
            for name in ("generations", "link", "preflight")
        },
        **{
            f"lockstep.snapshot.{name}": ("lockstep.snapshot", name)
            for name in ("history", "own", "evidence")
        },
    },
}

# Runs on the host: makes modules of the last line of standard input, and asks the last one.
_BOOT = """\
import json, sys, types
sent = json.loads(sys.stdin.read().rpartition("\\n")[2])
for name, text in sent["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), vars(module))
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)
json.dump(module.take(sent["asked"]), sys.stdout)
"""

#: The command on the host. Isolated, so that nothing in a folder of the operator's is imported.
COMMAND = ("/usr/bin/python3", "-I", "-c", _BOOT)


def document(asked: dict[str, Any], program: str = "snapshot") -> str:
    """What the command reads: its own modules, and the question.

    Args:
        asked: The question.
        program: The module that answers it: "snapshot" or "evidence".
    """
    chosen = {**_MODULES, **_MORE[program]}
    modules = [(name, _text(*place) if place else "") for name, place in chosen.items()]
    return json.dumps({"modules": modules, "asked": asked})


def _text(package: str, name: str) -> str:
    return (resources.files(package) / f"{name}.py").read_text(encoding="utf-8")
