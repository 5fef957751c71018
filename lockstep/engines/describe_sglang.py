"""Print what an installed SGLang knows, as JSON: flags with their values, and variables.

usage: PYTHON-OF-THE-ENGINE describe_sglang.py > catalogue/engines/sglang-VERSION.json

Runs in the engine's own environment, so it imports nothing of Lockstep. Needs no GPU: packages that
only a GPU machine has (sgl_kernel …) are stood in for, because the parser never calls them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock

# The parser needs fewer than ten; more means that something else is wrong.
MOST_ABSENT = 60


def main() -> int:
    """Ask, and print one JSON document."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    absent: list[str] = []
    _server_args(absent).add_cli_args(parser)
    if absent:
        print(f"stood in for {', '.join(absent)}", file=sys.stderr)
    json.dump(
        {
            "engine": "sglang",
            "version": importlib.metadata.version("sglang"),
            "flags": dict(sorted(flags(parser).items())),
            "environment": sorted(_variables()),
            "registries": {},
        },
        sys.stdout,
        indent=1,
        ensure_ascii=False,
    )
    print()
    return 0


def flags(parser: argparse.ArgumentParser) -> dict[str, list[str] | None]:
    """Every spelling of every flag → the values it takes, None where any will do."""
    found: dict[str, list[str] | None] = {}
    for action in parser._actions:
        values = None if action.choices is None else sorted(str(item) for item in action.choices)
        for spelling in action.option_strings:
            found[spelling] = values
    return found


def _server_args(absent: list[str]) -> Any:
    """SGLang's ServerArgs; a package it lacks here is stood in for, and the import tried again."""
    while True:
        try:
            from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

            return ServerArgs
        except ModuleNotFoundError as fault:
            name = fault.name or ""
            if not name or name.startswith("sglang") or len(absent) >= MOST_ABSENT:
                raise
            absent.append(name)
            stand_in = MagicMock(name=name)
            stand_in.__spec__ = ModuleSpec(name, None)
            stand_in.__path__ = []
            sys.modules[name] = stand_in
            for loaded in [key for key in sys.modules if key.split(".")[0] == "sglang"]:
                del sys.modules[loaded]


def _variables() -> list[str]:
    from sglang.srt.environ import Envs  # type: ignore[import-not-found]

    return [name for name in vars(Envs) if name.startswith(("SGLANG_", "SGL_"))]


if __name__ == "__main__":
    sys.exit(main())
