"""Import the classes that vLLM would load a checkpoint with: no GPU, no weights.

vLLM's own code names the architecture: it reads config.json or params.json, and decides between the
two by the names of the files beside them. What is not on the host yet therefore stands there empty.

Runs on the engine's Python, with the standard library alone beside vLLM.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# A file of tensors that holds none; newer versions of vLLM read the header for a type.
_NO_TENSORS = struct.pack("<Q", 2) + b"{}"


def fault(version: str, recipe: Mapping[str, Any]) -> str | None:
    """Which class of a recipe's checkpoint cannot be imported, and why; None when all can.

    Args:
        version: What vLLM calls itself.
        recipe: {"name", "argv", "checkpoint"}; the last is as `lockstep.host.specs` makes it.
    """
    name, argv = recipe["name"], recipe["argv"]
    with _named(recipe["checkpoint"]) as folder:
        try:
            config = _config(folder, argv)
        except Exception as error:
            return (
                f"recipe {name}: vLLM {version} cannot read the configuration of its checkpoint: "
                f"{_first_line(error)}"
            )
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
            return (
                f"recipe {name}: vLLM {version} cannot import its class {architecture} with "
                f"transformers {_transformers()}: {_first_line(error)}. Remedy: name another "
                "transformers (engine.transformers) or another vLLM"
            )
    return None


def _config(folder: Path, argv: Sequence[str]) -> Any:
    from vllm.plugins import load_general_plugins
    from vllm.transformers_utils.config import get_config

    load_general_plugins()
    chosen = _value(argv, "--config-format") or "auto"
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


def _value(argv: Sequence[str], flag: str) -> str | None:
    for index, word in enumerate(argv):
        if word == flag:
            return argv[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _first_line(error: Exception) -> str:
    """What it says; of an import the missing name, without the file that lacks it."""
    text = str(error).strip().partition("\n")[0]
    return text.partition(" (/")[0] if isinstance(error, ImportError) else text


def _transformers() -> str:
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
