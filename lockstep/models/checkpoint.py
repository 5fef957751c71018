"""The real content of a repository of weights, read without downloading the weights.

Only small JSON files are read: the file list, the configuration, the weight index. Whether a model
can see is a fact of its weight map, not of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lockstep.core.errors import LockstepError
from lockstep.models import gguf
from lockstep.models.architecture import Architecture, ArchitectureUnknown
from lockstep.models.configuration import experts, from_config

# A weight index names every tensor: about 127,000 lines for the largest in the catalogue.
LARGEST_JSON = 64 * 2**20
_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
_CONFIGS = ("config.json", "params.json")
# An engine loads one of these sets; repositories hold the same weights in several formats.
_SETS = (
    re.compile(r"model[^/]*\.safetensors"),
    re.compile(r"consolidated[^/]*\.safetensors"),
    re.compile(r"[^/]*\.safetensors"),
    re.compile(r"pytorch_model[^/]*\.bin"),
    re.compile(r".*\.(safetensors|gguf|bin|pt|pth)"),
)
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
_NEEDED = ("config.json", "tokenizer.json")
# Where vision towers and prediction heads live, as the families of the catalogue name them.
VISION = re.compile(
    r"(^|\.)(visual|vision_tower|vision_model|vision_encoder|vision_language_adapter|patch_merger"
    r"|multi_modal_projector|mm_projector|patch_embed)\."
)
_MTP = re.compile(r"(^|\.)(mtp|nextn|mtp_layers|eh_proj)(\.|$)")

# Takes the name of a file that is there, and how many bytes of its start are wanted (None: all).
Read = Callable[[str, int | None], bytes]


class CheckpointError(LockstepError):
    """A repository or folder of weights cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one revision of one repository holds. None: the repository does not say.

    Attributes:
        model: Hugging Face id, or folder.
        revision: Commit that was read, or None for a folder.
        files: Name → bytes of every file.
        weight_bytes: Total of the weight files that an engine loads.
        quantisation: Method as stored ("compressed-tensors", "fp8", "modelopt NVFP4"), or "none".
        dtype: Type of the unquantised tensors.
        tensors: Number of tensors in the index.
        vision_tensors: How many belong to a vision tower or its projector.
        mtp_tensors: How many belong to a multi-token-prediction head.
        vision_config: Whether the configuration describes a vision tower (boilerplate proves
            nothing: see vision_tensors).
        missing: Files that engines ask for and that are not there.
        licence: The licence tag.
        types: `model_type` of its configuration, that of its language model first.
        experts: What its configuration says of a mixture of experts.
        template: Whether its chat template takes two messages of one role in a row ("free") or
            refuses them ("alternating"); "none": it has no chat template.
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
    types: tuple[str, ...]
    experts: Literal["none", "plain", "quantised"] | None
    template: Literal["none", "free", "alternating"]
    architecture: Architecture | None
    architecture_unknown: str | None

    @property
    def sees(self) -> bool | None:
        """Whether it can read images: by its weight map, None where that is not published."""
        return None if self.vision_tensors is None else self.vision_tensors > 0


def describe(model: str, revision: str | None, files: Mapping[str, int], read: Read) -> Checkpoint:
    """Put together what the small files of a repository say; ``files``: name → bytes of every file.

    CheckpointError for broken JSON.
    """
    config = _json(read, files, model, *_CONFIGS)
    index = _json(read, files, model, *_INDEXES)
    names = _tensor_names(index) or _header_names(read, files)
    shaping = config or _of_gguf(read, files)
    shapes, why = _shapes(shaping, model)
    return Checkpoint(
        model=model,
        revision=revision,
        files=dict(files),
        weight_bytes=_loaded(files),
        quantisation=_quantisation(config, _json(read, files, model, "hf_quant_config.json")),
        dtype=_word(config, "torch_dtype", "dtype"),
        tensors=None if names is None else len(names),
        vision_tensors=None if names is None else sum(bool(VISION.search(n)) for n in names),
        mtp_tensors=None if names is None else sum(bool(_MTP.search(n)) for n in names),
        vision_config=None
        if config is None
        else any(key in config for key in ("vision_config", "vision_encoder", "visual")),
        missing=tuple(name for name in _NEEDED if name not in files),
        licence=_readme_licence(_whole(read, files, "README.md") or b""),
        types=_types(config or {}),
        experts=None if shaping is None else experts(shaping),
        template=_template(read, files, model),
        architecture=shapes,
        architecture_unknown=why,
    )


def _loaded(files: Mapping[str, int]) -> int:
    """Bytes of the first set of weights that is there."""
    sizes = ([size for name, size in files.items() if kind.fullmatch(name)] for kind in _SETS)
    return sum(next(filter(None, sizes), ()))


def _types(config: Mapping[str, Any]) -> tuple[str, ...]:
    parts = (config.get("text_config"), config.get("llm_config"), config)
    named = [part.get("model_type") for part in parts if isinstance(part, Mapping)]
    return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))


def _template(
    read: Read, files: Mapping[str, int], model: str
) -> Literal["none", "free", "alternating"]:
    """By the words with which templates refuse; Mistral's own tokenizer needs no template."""
    for name in _TEMPLATES:
        if name.endswith(".jinja"):
            text = (_whole(read, files, name) or b"").decode("utf-8", "replace")
        else:
            text = json.dumps((_json(read, files, model, name) or {}).get("chat_template") or "")
        if text.strip('"'):
            return "alternating" if re.search(r"\balternat(?:e|ing)\b", text) else "free"
    return "free" if "tekken.json" in files else "none"


def _tensor_names(index: Mapping[str, Any] | None) -> list[str] | None:
    weights = index.get("weight_map") if index else None
    return [str(name) for name in weights] if isinstance(weights, dict) else None


def _header_names(read: Read, files: Mapping[str, int]) -> list[str] | None:
    """Tensors of the only safetensors file, from its header: 8 bytes of length, then JSON."""
    weights = [name for name in files if name.endswith(".safetensors")]
    if len(weights) != 1:
        return None
    length = int.from_bytes(read(weights[0], 8)[:8], "little")
    if not 0 < length <= LARGEST_JSON:
        return None
    try:
        header = json.loads(read(weights[0], 8 + length)[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    return [name for name in header if name != "__metadata__"] if isinstance(header, dict) else None


def _of_gguf(read: Read, files: Mapping[str, int]) -> Mapping[str, Any] | None:
    """What the first of some GGUF files says; all quantisations of a model have the same layers."""
    firsts = [parts[0] for parts in gguf.quantisations(files).values()]
    return (gguf.configuration(read(firsts[0], gguf.START)) or None) if firsts else None


def _shapes(config: Mapping[str, Any] | None, model: str) -> tuple[Architecture | None, str | None]:
    if config is None:
        return None, "the repository has no config.json, and no GGUF file that tells of its layers"
    try:
        return from_config(config, f"configuration of {model}"), None
    except ArchitectureUnknown as fault:
        return None, f"{fault.what}: {fault.found}" if fault.found else fault.what


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
    groups = stated.get("config_groups")
    if isinstance(groups, Mapping) and (not detail or detail == "mixed-precision"):
        formats = [each.get("format") for each in groups.values() if isinstance(each, Mapping)]
        detail = ", ".join(sorted({each for each in formats if isinstance(each, str)})) or detail
    return f"{method} {detail}".strip() if detail else method


def _word(config: Mapping[str, Any] | None, *keys: str) -> str | None:
    text = (config or {}).get("text_config")
    for source in (config or {}, text if isinstance(text, dict) else {}):
        for key in keys:
            if isinstance(source.get(key), str):
                return str(source[key])
    return None


def _whole(read: Read, files: Mapping[str, int], name: str) -> bytes | None:
    """A small file's content; None where it is absent, or larger than any that is of use."""
    return read(name, None) if files.get(name, LARGEST_JSON + 1) <= LARGEST_JSON else None


def _json(
    read: Read, files: Mapping[str, int], model: str, *names: str
) -> Mapping[str, Any] | None:
    """The first of some files that holds a mapping with something in it."""
    for name in names:
        content = _whole(read, files, name)
        if content is None:
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as fault:
            found = str(fault).splitlines()[0]
            raise CheckpointError(f"{name} is not JSON", where=model, found=found) from fault
        if value and isinstance(value, dict):
            return value
    return None


def _readme_licence(card: bytes) -> str | None:
    """The `license:` line of the model card's header; `license_name:` where it says "other"."""
    if not card.startswith(b"---"):
        return None
    header = card.decode("utf-8", "replace").split("\n---", 1)[0]
    tags = dict(re.findall(r"^(license|license_name):\s*[\"']?([\w.+-]+)", header, re.MULTILINE))
    if tags.get("license") == "other":
        name = tags.get("license_name")
        return f"LicenseRef-{name}" if name else "other"
    return tags.get("license")
