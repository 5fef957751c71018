"""The classes with which vLLM would load a checkpoint, imported: no GPU, no weights.

vLLM's own code names the architecture. It reads config.json or params.json, and decides between the
two by the names of the files beside them. So files that are not on the host yet stand there empty.
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
# A file without tensors; newer versions of vLLM read the header for a type.
_NO_TENSORS = struct.pack("<Q", 2) + b"{}"


class ClassesUnreadable(Exception):
    """A configuration that vLLM cannot read; the text says why."""


def checkpoint_config(version: str, recipe: Mapping[str, Any]) -> Any:
    """Return the configuration of a recipe's checkpoint, as vLLM itself reads it.

    The recipe's "checkpoint" is as `lockstep.host.specs` makes it. Raises ClassesUnreadable if vLLM
    cannot read it.
    """
    with _linked_checkpoint(recipe["checkpoint"]) as folder:
        try:
            return _config_read_by_vllm(folder, recipe["argv"])
        except Exception as error:
            raise ClassesUnreadable(
                f"recipe {recipe['name']}: vLLM {version} cannot read the configuration of its "
                f"checkpoint: {_first_line(error)}"
            ) from error


def class_import_fault(version: str, name: str, config: Any) -> str | None:
    """Return which class of a recipe's checkpoint cannot be imported, and why; None if all can."""
    from vllm import ModelRegistry

    # In a checkpoint that sees, the part that writes text is a class of its own.
    text = getattr(config, "text_config", None)
    for architecture in [*_architectures(config), *_architectures(text)]:
        model_class = ModelRegistry.models.get(architecture)
        if model_class is None:
            continue
        try:
            model_class.load_model_cls()
        except Exception as error:
            reason, beside = _first_line(error), ""
            remedy = "build the environment anew, or name another vLLM"
            if _is_fault_of_transformers(error):
                beside = (
                    f" with transformers {installed_version('transformers') or '(not installed)'}"
                )
                remedy = "name another transformers (engine.transformers) or another vLLM"
            return (
                f"recipe {name}: vLLM {version} cannot import its class {architecture}{beside}: "
                f"{reason}. Remedy: {remedy}"
            )
    return None


def _is_fault_of_transformers(error: Exception) -> bool:
    """Tell whether an import failed within transformers, or for something that it lacks."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    within = str(frames[-1].f_globals.get("__name__")).partition(".")[0]
    return "transformers" in (within, *re.findall(r"\w+", str(error)))


def _config_read_by_vllm(folder: Path, argv: Sequence[str]) -> Any:
    from vllm.plugins import load_general_plugins
    from vllm.transformers_utils.config import get_config

    load_general_plugins()
    config_format = VLLM.value(argv, "config_format") or "auto"
    is_trusted = "--trust-remote-code" in argv
    return get_config(str(folder), trust_remote_code=is_trusted, config_format=config_format)


def _architectures(config: Any) -> list[str]:
    return list(getattr(config, "architectures", None) or ())


@contextlib.contextmanager
def _linked_checkpoint(checkpoint: Sequence[Mapping[str, Any]]) -> Iterator[Path]:
    """Make a folder with all files of a checkpoint by name: links to those here, empty others."""
    with tempfile.TemporaryDirectory(prefix="lockstep-checkpoint-") as name:
        for part in checkpoint:
            if not part["files"]:
                yield Path(part["folder"])
                return
            for file in part["files"]:
                source_path, target_path = Path(part["folder"], file), Path(name, file)
                target_path.parent.mkdir(parents=True, exist_ok=True)
                target_path.unlink(missing_ok=True)
                if source_path.exists():
                    target_path.symlink_to(source_path)
                else:
                    target_path.write_bytes(
                        _NO_TENSORS if target_path.suffix == ".safetensors" else b""
                    )
        yield Path(name)


def _first_line(error: Exception) -> str:
    """Return an error's first line; for an import the missing name without the file's."""
    text = str(error).strip().partition("\n")[0]
    return text.partition(" (/")[0] if isinstance(error, ImportError) else text


def installed_version(name: str) -> str | None:
    """Return the installed version of a distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
