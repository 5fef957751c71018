"""The real content of a repository of weights, read without downloading the weights.

Only small JSON files are read: the file list, the configuration, the weight index. A model that can
see is known by its weight map, not by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lockstep.checkpoints import chat_template, gguf, weight_files
from lockstep.checkpoints.architecture import Architecture, ArchitectureUnknown
from lockstep.checkpoints.configuration import experts, from_config
from lockstep.core.errors import LockstepError
from lockstep.onhost.core.request_kinds_and_refused_shapes import TemplateShape
from lockstep.onhost.engines import ENGINES

# A weight index names every tensor: about 127,000 lines for the largest in the catalogue.
LARGEST_JSON = 64 * 2**20
_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
_CONFIGS = ("config.json", "params.json")
# Format for a recipe that names no engine.
_FORMAT = weight_files.OR.join(
    next(engine for engine in ENGINES.values() if engine.usual).weight_patterns((), "")
)
_NEEDED = ("config.json", "tokenizer.json")
# Names of vision towers and prediction heads in the families of the catalogue.
VISION = re.compile(
    r"(^|\.)(visual|vision_tower|vision_model|vision_encoder|vision_language_adapter|patch_merger"
    r"|multi_modal_projector|mm_projector|patch_embed)\."
)
_MTP = re.compile(r"(^|\.)(mtp|nextn|mtp_layers|eh_proj)(\.|$)")

# Arguments: the name of an existing file, and the wanted bytes of its start (None: all).
Read = Callable[[str, int | None], bytes]


class CheckpointError(LockstepError):
    """Weights of a repository or folder cannot be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of one revision of one repository. None: the repository does not say.

    Attributes:
        model: Hugging Face id, or folder.
        revision: Commit that was read, or None for a folder.
        files: Name → bytes of every file.
        weight_bytes: Total of the weight files that an engine loads; of GGUF those of the
            quantisation that was asked for, or of the only one, else 0.
        quantisations: Of GGUF: each one → bytes of its files.
        left_out: Bytes of the files that a deploy does not fetch, by top folder or name.
        quantisation: Method as stored ("compressed-tensors", "fp8", "modelopt NVFP4"), or "none".
        dtype: Type of the unquantised tensors.
        tensors: Number of tensors in the index.
        vision_tensors: Number of them that belong to a vision tower or its projector.
        mtp_tensors: Number of them that belong to a multi-token-prediction head.
        vision_config: Whether the configuration describes a vision tower (boilerplate proves
            nothing: see vision_tensors).
        missing: Files that engines ask for and that do not exist.
        licence: The licence tag.
        types: `model_type` of its configuration, that of its language model first.
        experts: The configuration's answer about a mixture of experts.
        template: Whether there is a chat template, or Mistral's tokenizer in its place.
        refused_shapes: Shapes of a conversation that the template refuses; None: not known.
        architecture: Shapes that decide the KV cache.
        architecture_unknown: Why there are none.
    """

    model: str
    revision: str | None
    files: Mapping[str, int]
    weight_bytes: int
    quantisations: Mapping[str, int]
    left_out: Mapping[str, int]
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
    template: bool
    refused_shapes: tuple[TemplateShape, ...] | None
    architecture: Architecture | None
    architecture_unknown: str | None

    @property
    def sees(self) -> bool | None:
        """True if the model can read images: by the weight map, of GGUF by an mmproj file.

        None where neither is published.
        """
        if self.vision_tensors is not None:
            return self.vision_tensors > 0
        return any(map(gguf.is_mmproj, self.files)) if self.quantisations else None


def describe(
    model: str, revision: str | None, files: Mapping[str, int], read: Read, quant: str = ""
) -> Checkpoint:
    """Describe a checkpoint by the small files of its repository.

    Args:
        model: Name of the repository, or folder.
        revision: Its commit.
        files: Name → bytes of every file.
        read: Reads a file.
        quant: The quantisation that is meant, of GGUF; "" for none.

    Raises:
        CheckpointError: broken JSON, or JSON that is no mapping.
    """
    config = _json(read, files, model, *_CONFIGS)
    index = _json(read, files, model, *_INDEXES)
    names = _tensor_names(index) or _header_names(read, files)
    shaping = config or _of_gguf(read, files)
    shapes, why = _shapes(shaping, model)
    quants = gguf.quantisations(files)
    weights, left_out = _weights(read, files, model, quant, quants)
    template, refused_shapes = chat_template.of_repository(lambda name: _whole(read, files, name))
    return Checkpoint(
        model=model,
        revision=revision,
        files=dict(files),
        weight_bytes=sum(files[name] for name in weights),
        quantisations={name: sum(files[part] for part in parts) for name, parts in quants.items()},
        left_out=left_out,
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
        template=template,
        refused_shapes=refused_shapes,
        architecture=shapes,
        architecture_unknown=why,
    )


def _weights(
    read: Read,
    files: Mapping[str, int],
    model: str,
    quant: str,
    quants: Mapping[str, tuple[str, ...]],
) -> tuple[Collection[str], dict[str, int]]:
    """Return the weight files that an engine loads, and the files left out beside them."""

    def index(name: str) -> Collection[str]:
        weight_map = (_json(read, files, model, name) or {}).get("weight_map")
        return set(weight_map.values()) if isinstance(weight_map, dict) else ()

    loaded_files = () if quant else weight_files.weights_of(files, _FORMAT, index)
    if loaded_files:
        return loaded_files, weight_files.sizes_left_out(
            files, weight_files.needed_files(files, [_FORMAT], index)
        )
    if not quant and len(quants) != 1:
        return (), {}
    pattern = gguf.MARK + (quant or next(iter(quants)))
    chosen_files = gguf.chosen_files(list(files), (pattern, gguf.OPTIONAL_MMPROJ))
    kept_names = {name for paths in chosen_files.values() for name in paths}
    return chosen_files[pattern], gguf.sizes_left_out(files, kept_names)


def _types(config: Mapping[str, Any]) -> tuple[str, ...]:
    parts = (config.get("text_config"), config.get("llm_config"), config)
    type_names = [part.get("model_type") for part in parts if isinstance(part, Mapping)]
    return tuple(dict.fromkeys(name for name in type_names if isinstance(name, str)))


def _tensor_names(index: Mapping[str, Any] | None) -> list[str] | None:
    weights = index.get("weight_map") if index else None
    return [str(name) for name in weights] if isinstance(weights, dict) else None


def _header_names(read: Read, files: Mapping[str, int]) -> list[str] | None:
    """Return the tensors of the only safetensors file, from its header.

    The header is 8 bytes of length, then JSON.
    """
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
    """Return the facts in the first of some GGUF files; all quantisations have the same layers."""
    firsts = [parts[0] for parts in gguf.quantisations(files).values()]
    return (gguf.configuration(read(firsts[0], gguf.START)) or None) if firsts else None


def _shapes(config: Mapping[str, Any] | None, model: str) -> tuple[Architecture | None, str | None]:
    if config is None:
        return None, "the repository has no config.json, and no GGUF file that tells of its layers"
    try:
        return from_config(config, f"configuration of {model}"), None
    except ArchitectureUnknown as fault:
        return None, f"{fault.summary}: {fault.found}" if fault.found else fault.summary


def _quantisation(
    config: Mapping[str, Any] | None, modelopt: Mapping[str, Any] | None
) -> str | None:
    if modelopt and isinstance(modelopt.get("quantization"), dict):
        return f"modelopt {modelopt['quantization'].get('quant_algo') or '?'}"
    if config is None:
        return None
    stated_quantisation = config.get("quantization_config") or config.get("quantization")
    if not isinstance(stated_quantisation, dict):
        return "none"
    method = str(
        stated_quantisation.get("quant_method") or stated_quantisation.get("qformat_weight") or "?"
    )
    detail = (
        stated_quantisation.get("format")
        or stated_quantisation.get("quant_algo")
        or stated_quantisation.get("bits")
    )
    groups = stated_quantisation.get("config_groups")
    if isinstance(groups, Mapping) and (not detail or detail == "mixed-precision"):
        formats = [value.get("format") for value in groups.values() if isinstance(value, Mapping)]
        detail = ", ".join(sorted({value for value in formats if isinstance(value, str)})) or detail
    return f"{method} {detail}".strip() if detail else method


def _word(config: Mapping[str, Any] | None, *keys: str) -> str | None:
    text = (config or {}).get("text_config")
    for source in (config or {}, text if isinstance(text, dict) else {}):
        for key in keys:
            if isinstance(source.get(key), str):
                return str(source[key])
    return None


def _whole(read: Read, files: Mapping[str, int], name: str) -> bytes | None:
    """Return a small file's content; None where it is absent, or too large to be of use."""
    return read(name, None) if files.get(name, LARGEST_JSON + 1) <= LARGEST_JSON else None


def _json(
    read: Read, files: Mapping[str, int], model: str, *names: str
) -> Mapping[str, Any] | None:
    """Return the first of some files that holds a mapping that is not empty."""
    for name in names:
        content = _whole(read, files, name)
        if content is None:
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as fault:
            reason = str(fault).splitlines()[0]
            raise CheckpointError(f"{name} is not JSON", where=model, found=reason) from fault
        if not isinstance(value, dict):
            raise CheckpointError(
                f"{name} must be a JSON mapping", where=model, found=f"a {type(value).__name__}"
            )
        if value:
            return value
    return None


def _readme_licence(card: bytes) -> str | None:
    """Return the `license:` of the model card's header; `license_name:` where that says "other"."""
    if not card.startswith(b"---"):
        return None
    header = card.decode("utf-8", "replace").split("\n---", 1)[0]
    tags = dict(re.findall(r"^(license|license_name):\s*[\"']?([\w.+-]+)", header, re.MULTILINE))
    if tags.get("license") == "other":
        name = tags.get("license_name")
        return f"LicenseRef-{name}" if name else "other"
    return tags.get("license")
