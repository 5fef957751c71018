"""Print what an installed vLLM knows, as JSON: flags with their values, variables, registries.

usage: PYTHON-OF-THE-ENGINE describe_vllm.py > catalogue/engines/vllm-VERSION.json

Runs in the engine's own environment, so it imports nothing of Lockstep. Needs no GPU and starts no
engine; importing vLLM takes about 20 s.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any


def main() -> int:
    """Ask, and print one JSON document."""
    from vllm import envs

    json.dump(
        {
            "engine": "vllm",
            "version": importlib.metadata.version("vllm").split("+")[0],
            "flags": dict(sorted(flags(_parser()).items())),
            "environment": sorted(envs.environment_variables),
            "registries": {name: sorted(_quietly(ask)) for name, ask in sorted(REGISTRIES.items())},
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


def _parser() -> argparse.ArgumentParser:
    from vllm.entrypoints.cli.serve import cmd_init

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    commands = FlexibleArgumentParser(prog="vllm").add_subparsers(dest="subparser")
    parser: argparse.ArgumentParser = cmd_init()[0].subparser_init(commands)
    return parser


def _quietly(ask: Callable[[], Iterable[str]]) -> list[str]:
    """A registry's names; [] where this version keeps it elsewhere."""
    try:
        return [str(name) for name in ask()]
    except Exception as fault:
        print(f"{ask.__name__}: {fault}", file=sys.stderr)
        return []


def _attention_backends() -> Iterable[str]:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    return [member.name for member in AttentionBackendEnum]


def _tool_parsers() -> Iterable[str]:
    from vllm.tool_parsers import ToolParserManager

    return list(ToolParserManager.list_registered())


def _reasoning_parsers() -> Iterable[str]:
    from vllm.reasoning import ReasoningParserManager

    return list(ReasoningParserManager.list_registered())


def _speculative_methods() -> Iterable[str]:
    from typing import get_args

    from vllm.config import speculative

    return _flatten(get_args(speculative.SpeculativeMethod))


def _load_formats() -> Iterable[str]:
    from vllm.model_executor.model_loader import _LOAD_FORMAT_TO_MODEL_LOADER

    return list(_LOAD_FORMAT_TO_MODEL_LOADER)


def _flatten(values: Iterable[Any]) -> list[str]:
    from typing import get_args

    names: list[str] = []
    for value in values:
        names += [value] if isinstance(value, str) else _flatten(get_args(value))
    return names


REGISTRIES: dict[str, Callable[[], Iterable[str]]] = {
    "--attention-backend": _attention_backends,
    "--load-format": _load_formats,
    "--reasoning-parser": _reasoning_parsers,
    "--tool-call-parser": _tool_parsers,
    "speculative-config.method": _speculative_methods,
}


if __name__ == "__main__":
    sys.exit(main())
