"""Import the classes that vLLM would load a checkpoint with: no GPU, no weights.

vLLM's own code names the architecture: it reads config.json or params.json, and decides between the
two by the names of the files beside them. What is not on the host yet therefore stands there empty.

Runs on the engine's Python, with the standard library alone beside vLLM.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import struct
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost import engines

VLLM = engines.ENGINES["vllm"]
# A file of tensors that holds none; newer versions of vLLM read the header for a type.
_NO_TENSORS = struct.pack("<Q", 2) + b"{}"


class Unreadable(Exception):
    """A configuration that vLLM cannot read; the text says why."""


def config(version: str, recipe: Mapping[str, Any]) -> Any:
    """The configuration of a recipe's checkpoint, as vLLM itself reads it; else Unreadable.

    The recipe's "checkpoint" is as `lockstep.host.specs` makes it.
    """
    with _named(recipe["checkpoint"]) as folder:
        try:
            return _config(folder, recipe["argv"])
        except Exception as error:
            raise Unreadable(
                f"recipe {recipe['name']}: vLLM {version} cannot read the configuration of its "
                f"checkpoint: {_first_line(error)}"
            ) from error


def fault(version: str, name: str, config: Any) -> str | None:
    """Which class of a recipe's checkpoint cannot be imported, and why; None when all can."""
    from vllm import ModelRegistry

    # The part that writes text is a class of its own in a checkpoint that sees.
    text = getattr(config, "text_config", None)
    for architecture in [*_architectures(config), *_architectures(text)]:
        registered = ModelRegistry.models.get(architecture)
        if registered is None:
            continue
        try:
            registered.load_model_cls()
        except Exception as error:
            said, beside = _first_line(error), ""
            remedy = "build the environment anew, or name another vLLM"
            if _of_transformers(error):
                beside = f" with transformers {installed('transformers') or '(not installed)'}"
                remedy = "name another transformers (engine.transformers) or another vLLM"
            return (
                f"recipe {name}: vLLM {version} cannot import its class {architecture}{beside}: "
                f"{said}. Remedy: {remedy}"
            )
    return None


def _of_transformers(error: Exception) -> bool:
    """Whether an import failed for what transformers lacks, or within it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    within = str(frames[-1].f_globals.get("__name__")).partition(".")[0]
    return "transformers" in (within, *re.findall(r"\w+", str(error)))


def _config(folder: Path, argv: Sequence[str]) -> Any:
    from vllm.plugins import load_general_plugins
    from vllm.transformers_utils.config import get_config

    load_general_plugins()
    chosen = VLLM.value(argv, "config_format") or "auto"
    trusted = "--trust-remote-code" in argv
    return get_config(str(folder), trust_remote_code=trusted, config_format=chosen)


def _architectures(config: Any) -> list[str]:
    return list(getattr(config, "architectures", None) or ())


@contextlib.contextmanager
def _named(checkpoint: Sequence[Mapping[str, Any]]) -> Iterator[Path]:
    """A folder with all files of a checkpoint by name: what is on the host, and the rest empty."""
    with tempfile.TemporaryDirectory(prefix="lockstep-checkpoint-") as name:
        for part in checkpoint:
            if not part["files"]:
                yield Path(part["folder"])
                return
            for file in part["files"]:
                there, here = Path(part["folder"], file), Path(name, file)
                here.parent.mkdir(parents=True, exist_ok=True)
                here.unlink(missing_ok=True)
                if there.exists():
                    here.symlink_to(there)
                else:
                    here.write_bytes(_NO_TENSORS if here.suffix == ".safetensors" else b"")
        yield Path(name)


def _first_line(error: Exception) -> str:
    """What it says; of an import the missing name, without the file that lacks it."""
    text = str(error).strip().partition("\n")[0]
    return text.partition(" (/")[0] if isinstance(error, ImportError) else text


def installed(name: str) -> str | None:
    """Installed version of a distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
