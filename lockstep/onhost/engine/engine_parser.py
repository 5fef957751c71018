"""Ask an engine's own parser about one recipe: no GPU, no engine start, no model.

Runs on the engine's Python, in its venv or inside its image, with the standard library alone.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
# The freeze guard's flag, and every value that it is given (lockstep/recipes/freeze_guard.py).
MOE_FLAG = "--moe-backend"
MOE_BACKENDS = ("marlin", "triton")


class Unanswered(Exception):
    """The engine cannot be asked here; the text says why."""


def takes_moe_flag(engine: str) -> bool | None:
    """Whether the parser takes the freeze guard's flag with all its values.

    None where the parser cannot be asked, and for SGLang, which needs no guard.
    """
    if engine != "vllm":
        return None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            _, commands, parser_class = _imported(_vllm_entries)
            for backend in MOE_BACKENDS:
                words = ["serve", "model", MOE_FLAG, backend]
                for _ in _parsed(commands, parser_class, words):
                    pass
    except SystemExit:
        return False
    except Exception:
        return None
    return True


def fault(
    engine: str, version: str, recipe: Mapping[str, Any], moe_flag: bool | None
) -> str | None:
    """Why the engine refuses a recipe, with flag and version; None when it takes it.

    Args:
        engine: "vllm" or "sglang".
        version: What it calls itself.
        recipe: {"name", "argv", "environment"}; argv is the engine's whole command line. Where
            there is {"without_flag": {"argv", "environment"}}, this is what runs on an engine whose
            parser lacks the freeze guard's flag.
        moe_flag: As `takes_moe_flag` says.

    Raises:
        Unanswered: the parser cannot be imported, or fails in a way that judges no argument, as for
            want of a GPU or of a folder to write to.
    """
    known = f"{NAMES[engine]} {version}"
    ask = {"vllm": _vllm, "sglang": _sglang}[engine]
    if moe_flag is False and "without_flag" in recipe:
        recipe = {**recipe, **recipe["without_flag"]}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), _given(engine, recipe["environment"]):
            return ask(known, recipe)
    except Unanswered as reason:
        raise Unanswered(f"{known} cannot be imported: {reason}") from None
    except SystemExit:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        return f"recipe {recipe['name']}: {known} refuses it: {(lines or ['no reason given'])[-1]}"
    except (TypeError, ValueError) as error:
        return f"recipe {recipe['name']}: {known} refuses it: {error}"
    except Exception as error:
        raise Unanswered(f"recipe {recipe['name']}: {known} cannot be asked: {error}") from None


@contextlib.contextmanager
def _given(engine: str, environment: Mapping[str, str]) -> Iterator[None]:
    """The recipe's own variables of this engine; folders and caches are of where it will run."""
    # Here, because the commands of the control machine read this module's constants.
    from unittest import mock

    ours = {name: value for name, value in environment.items() if name.startswith(_PREFIX[engine])}
    with mock.patch.dict(os.environ, ours):
        yield


_PREFIX = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_")}


def _imported(load: Callable[[], Any]) -> Any:
    """What a function imports; an engine that cannot be imported fails in many ways."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise Unanswered(error) from error


def _vllm(known: str, recipe: Mapping[str, Any]) -> str | None:
    envs, commands, parser_class = _imported(_vllm_entries)
    for variable in recipe["environment"]:
        if not variable.startswith("VLLM_"):
            continue
        if variable not in envs.environment_variables:
            return f"recipe {recipe['name']}: {known} does not know the variable {variable}"
        try:
            envs.environment_variables[variable]()
        except (TypeError, ValueError) as error:
            return f"recipe {recipe['name']}: {known} refuses the value of {variable}: {error}"
    for command, parsed in _parsed(commands, parser_class, recipe["argv"][1:]):
        template = getattr(parsed, "chat_template", None)
        if isinstance(template, str) and template.startswith("/"):
            # Among the weights, which may not be here yet.
            parsed.chat_template = None
        command.validate(parsed)
    return None


def _parsed(commands: Any, parser_class: Any, words: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """vLLM's `serve`, and what its parser makes of a command line."""
    parser = parser_class(prog="vllm")
    subparsers = parser.add_subparsers(dest="subparser")
    for command in commands():
        _imported(functools.partial(command.subparser_init, subparsers))
        yield command, parser.parse_args(words)


def _vllm_entries() -> tuple[Any, Any, Any]:
    from vllm import envs

    # The command line's own entry, which has kept its place through all versions; what stands
    # behind it has moved.
    from vllm.entrypoints.cli.serve import cmd_init

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    _pretend_gpu()
    return envs, cmd_init, FlexibleArgumentParser


def _pretend_gpu() -> None:
    """Let vLLM's parser list its defaults where no GPU is: without a device it raises instead.

    Ran on 0.32.0's own parser, 2026-11.
    """
    with contextlib.suppress(ImportError):
        from vllm.platforms import current_platform

        if not current_platform.device_type:
            current_platform.device_type = "cuda"


def _sglang(known: str, recipe: Mapping[str, Any]) -> str | None:
    """The parser alone: what SGLang does with the parsed arguments wants the model and a GPU.

    Its variables are not asked about, because it keeps no complete list of them.
    """
    server_args = _imported(_sglang_entries)
    parser = argparse.ArgumentParser(prog="sglang serve")
    server_args.add_cli_args(parser)
    argv = list(recipe["argv"])
    start = next(at for at, word in enumerate(argv) if word in ("serve", "sglang.launch_server"))
    words = argv[start + 1 :]
    if words and not words[0].startswith("-"):
        words = ["--model-path", *words]
    parser.parse_args(words)
    return None


def _sglang_entries() -> Any:
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    return ServerArgs
