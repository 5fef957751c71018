"""The real content of a repository of weights, read without downloading the weights.

Only small JSON files are read: the file list, the configuration, the weight index. Whether a model
can see is a fact of its weight map, not of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.core.errors import LockstepError
from lockstep.models.architecture import Architecture, ArchitectureUnknown, from_config

# A weight index names every tensor: about 127,000 lines for the largest in the catalogue.
LARGEST_JSON = 64 * 2**20
_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
_CONFIGS = ("config.json", "params.json")
_WEIGHTS = re.compile(r"\.(safetensors|gguf|bin|pt|pth)$")
_NEEDED = ("config.json", "tokenizer.json")
# Where vision towers and prediction heads live, as the families of the catalogue name them.
VISION = re.compile(
    r"(^|\.)(visual|vision_tower|vision_model|vision_encoder|vision_language_adapter|patch_merger"
    r"|multi_modal_projector|mm_projector|patch_embed)\."
)
_MTP = re.compile(r"(^|\.)(mtp|nextn|mtp_layers|eh_proj)(\.|$)")

# Takes a file name and how many bytes of its start are wanted (None: all of it).
Read = Callable[[str, int | None], bytes | None]


class CheckpointError(LockstepError):
    """A repository or folder of weights cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one revision of one repository holds. None: the repository does not say.

    Attributes:
        model: Hugging Face id, or folder.
        revision: Commit that was read, or None for a folder.
        files: Name → bytes of every file.
        weight_bytes: Total of the weight files.
        quantisation: Method as stored ("compressed-tensors", "fp8", "modelopt NVFP4"), or "none".
        dtype: Type of the unquantised tensors.
        tensors: Number of tensors in the index.
        vision_tensors: How many belong to a vision tower or its projector.
        mtp_tensors: How many belong to a multi-token-prediction head.
        vision_config: Whether the configuration describes a vision tower (boilerplate proves
            nothing: see vision_tensors).
        missing: Files that engines ask for and that are not there.
        licence: The licence tag.
        architecture: Shapes that decide the KV cache.
        architecture_unknown: Why there are none.
    """

    model: str
    revision: str | None
    files: Mapping[str, int]
    weight_bytes: int
    quantisation: str | None
    dtype: str | None
    tensors: int | None
    vision_tensors: int | None
    mtp_tensors: int | None
    vision_config: bool | None
    missing: tuple[str, ...]
    licence: str | None
    architecture: Architecture | None
    architecture_unknown: str | None

    @property
    def sees(self) -> bool | None:
        """Whether it can read images: by its weight map, None where that is not published."""
        return None if self.vision_tensors is None else self.vision_tensors > 0


def describe(model: str, revision: str | None, files: Mapping[str, int], read: Read) -> Checkpoint:
    """Put together what the small files of a repository say.

    Args:
        model: Its name, for errors.
        revision: The commit, if there is one.
        files: Name → bytes of every file.
        read: Returns a file's content or its start, or None where it is absent.

    Raises:
        CheckpointError: a JSON file is broken.
    """
    config = _first_json(read, _CONFIGS, files, model)
    index = _first_json(read, _INDEXES, files, model)
    names = _tensor_names(index) or _header_names(read, files)
    shapes, why = _shapes(config, model)
    return Checkpoint(
        model=model,
        revision=revision,
        files=dict(files),
        weight_bytes=sum(size for name, size in files.items() if _WEIGHTS.search(name)),
        quantisation=_quantisation(config, _json(read, "hf_quant_config.json", files, model)),
        dtype=_word(config, "torch_dtype", "dtype"),
        tensors=None if names is None else len(names),
        vision_tensors=None if names is None else sum(bool(VISION.search(n)) for n in names),
        mtp_tensors=None if names is None else sum(bool(_MTP.search(n)) for n in names),
        vision_config=None
        if config is None
        else any(key in config for key in ("vision_config", "vision_encoder", "visual")),
        missing=tuple(name for name in _NEEDED if name not in files),
        licence=_readme_licence(read),
        architecture=shapes,
        architecture_unknown=why,
    )


def _tensor_names(index: Mapping[str, Any] | None) -> list[str] | None:
    weights = index.get("weight_map") if index else None
    return [str(name) for name in weights] if isinstance(weights, dict) else None


def _header_names(read: Read, files: Mapping[str, int]) -> list[str] | None:
    """Tensors of the only safetensors file, from its header: 8 bytes of length, then JSON."""
    weights = [name for name in files if name.endswith(".safetensors")]
    if len(weights) != 1:
        return None
    length = int.from_bytes((read(weights[0], 8) or b"")[:8], "little")
    if not 0 < length <= LARGEST_JSON:
        return None
    try:
        header = json.loads((read(weights[0], 8 + length) or b"")[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    return [name for name in header if name != "__metadata__"] if isinstance(header, dict) else None


def _shapes(config: Mapping[str, Any] | None, model: str) -> tuple[Architecture | None, str | None]:
    if config is None:
        return None, "the repository has no config.json"
    try:
        return from_config(config, f"config.json of {model}"), None
    except ArchitectureUnknown as fault:
        return None, fault.what


def _quantisation(
    config: Mapping[str, Any] | None, modelopt: Mapping[str, Any] | None
) -> str | None:
    if modelopt and isinstance(modelopt.get("quantization"), dict):
        return f"modelopt {modelopt['quantization'].get('quant_algo') or '?'}"
    if config is None:
        return None
    stated = config.get("quantization_config") or config.get("quantization")
    if not isinstance(stated, dict):
        return "none"
    method = str(stated.get("quant_method") or stated.get("qformat_weight") or "?")
    detail = stated.get("format") or stated.get("quant_algo") or stated.get("bits")
    return f"{method} {detail}".strip() if detail else method


def _word(config: Mapping[str, Any] | None, *keys: str) -> str | None:
    text = (config or {}).get("text_config")
    for source in (config or {}, text if isinstance(text, dict) else {}):
        for key in keys:
            if isinstance(source.get(key), str):
                return str(source[key])
    return None


def _first_json(
    read: Read, names: tuple[str, ...], files: Mapping[str, int], model: str
) -> Mapping[str, Any] | None:
    return next((found for name in names if (found := _json(read, name, files, model))), None)


def _json(read: Read, name: str, files: Mapping[str, int], model: str) -> Mapping[str, Any] | None:
    if name not in files:
        return None
    content = read(name, None)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise CheckpointError(
            f"{name} is not JSON", where=model, found=str(fault).splitlines()[0]
        ) from fault
    return value if isinstance(value, dict) else None


def _readme_licence(read: Read) -> str | None:
    """The `license:` line of the model card's header; `license_name:` where it says "other"."""
    card = read("README.md", None)
    if not card or not card.startswith(b"---"):
        return None
    header = card.decode("utf-8", "replace").split("\n---", 1)[0]
    tags = dict(re.findall(r"^(license|license_name):\s*[\"']?([\w.+-]+)", header, re.MULTILINE))
    if tags.get("license") == "other":
        name = tags.get("license_name")
        return f"LicenseRef-{name}" if name else "other"
    return tags.get("license")
