"""GGUF: the files of a repository that are one model in one quantisation."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

#: Bytes at the start of a first part, where the model's metadata stands before the tokenizer's.
START = 2**18
# Number of a scalar's type in the format → its letter in `struct`.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
# Key after the architecture's name → key of a `config.json` with the same meaning.
_SAME = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
}
# Layers of other kinds.
_OTHER = (
    *("shortconv.", "wkv.", "attention.indexer.", "attention.shared_kv_layers"),
    *("attention.key_length_swa", "attention.value_length_swa"),
)
# Keys of MLA. A file without the widths of its heads is from before April 2025 (llama.cpp#12801):
# every build keeps K and V of each head of it, as of any other model.
_LATENT = "attention.kv_lora_rank"
_LATENT_HEADS = ("attention.key_length_mla", "attention.value_length_mla")
_WINDOW, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
# One layer of so many, the last of its group, sees the whole context where the file does not say
# which. Read in llama.cpp's loaders for Gemma 2 and Cohere 2, 2026-11; the others are those of the
# same models' classes in transformers (`configuration`).
_PERIODS = {
    "gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4,
}  # fmt: skip
# Key of a gated DeltaNet → key of a `config.json` with the same meaning.
_STATES = {
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
}
_INNER = "ssm.inner_size"
_STATE_SIZES = (*_STATES, _INNER)
# Sizes beside those; a list in place of any has one for each layer.
_SIZES = (_WINDOW, _INNER, _LATENT, *_LATENT_HEADS, "full_attention_interval")
# Architectures that have one, where every fourth layer sees the whole context unless stated.
_DELTA_NETS = ("qwen3next", "qwen35", "qwen35moe")
#: Prefix of a quantisation's name in a list of files.
MARK = ":"
#: Entry for the mmproj file in such a list: it must exist; it may exist.
MMPROJ, OPTIONAL_MMPROJ = f"{MARK}mmproj", f"{MARK}mmproj?"
#: Entries of a list that may be absent.
OPTIONAL = (OPTIONAL_MMPROJ,)
_QUANT = re.compile(
    r"(?<![^-./])(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32)$", re.IGNORECASE
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$|\.gguf$", re.IGNORECASE)
# Files beside a model: for images, counts for its quantisation, and a draft of its own.
_BESIDE = re.compile(r"mmproj|(?:^|/)(?:imatrix|mtp-)[^/]*$", re.IGNORECASE)


def files_of(names: Iterable[str], quant: str) -> tuple[str, ...]:
    """Return the files of one quantisation, first part first; () where there is none.

    ``quant`` is as in recipes after the repository's name ("UD-IQ2_M"). The file's name ends with
    it, or the folder's name where the file's has none.
    """
    end = re.compile(rf"(?:^|[-./]){re.escape(quant)}$", re.IGNORECASE)
    sets: dict[str, list[str]] = {}
    for name in sorted(names):
        whole = _PART.sub("", name)
        if whole == name or _BESIDE.search(whole):
            continue
        folder, _, stem = whole.rpartition("/")
        if end.search(stem) or (not _QUANT.search(stem) and end.search(folder)):
            sets.setdefault(whole, []).append(name)
    # `Q4_K_M` also ends `UD-Q4_K_M`, which is another one.
    return tuple(sets[min(sets, key=len)]) if sets else ()


def missing_parts(files: Sequence[str]) -> tuple[str, ...]:
    """Return the parts that a model's files lack, by the numbers in their names."""
    numbers = _PART.search(files[0]) if files else None
    if numbers is None or not numbers[2]:
        return ()
    whole, of = _PART.sub("", files[0]), numbers[2]
    parts = (f"{whole}-{number:05d}-of-{of}.gguf" for number in range(1, int(of) + 1))
    names_present = {name.lower() for name in files}
    return tuple(part for part in parts if part.lower() not in names_present)


def mmproj(names: Iterable[str], model: str) -> str | None:
    """Return the mmproj file for a model's first file, as `llama-server -hf` chooses it.

    It is in the nearest folder above, of the nearest width (`find_best_mmproj` of llama.cpp's
    common/download.cpp, as public projects that do the same describe it, 2026-11).
    """
    wide, folders = _width(model), model.split("/")[:-1]
    near = []
    for name in sorted(names):
        above = name.split("/")[:-1]
        if is_mmproj(name) and folders[: len(above)] == above:
            near.append((-len(above), abs(_width(name) - wide), name))
    return min(near)[2] if near else None


def is_mmproj(name: str) -> bool:
    """Tell whether a file is the mmproj of a model, by which it sees images."""
    return "mmproj" in name.lower() and _PART.search(name) is not None


def _width(name: str) -> int:
    """Return a quantisation's bits by its name: 4 for Q4_K_M, 16 for BF16; 0 where it has none."""
    found = re.search(r"\d+", (_QUANT.search(_PART.sub("", name)) or [""])[0])
    return int(found[0]) if found else 0


def quantisations(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return each quantisation that some files hold ("UD-IQ2_M") → its files, first part first."""
    in_order = sorted(names)
    wholes = {_PART.sub("", name) for name in in_order if _PART.search(name)}
    files_by_name = {
        quant: files_of(in_order, quant) for quant in sorted(map(_quantisation_name, wholes))
    }
    return {quant: files for quant, files in files_by_name.items() if files}


def _quantisation_name(whole: str) -> str:
    """Return the quantisation in a file's name or its folder's, or the name itself."""
    folder, _, stem = whole.rpartition("/")
    found = _QUANT.search(stem) or _QUANT.search(folder)
    return found[0] if found else stem


def is_quantisation(pattern: str) -> bool:
    """Tell whether an entry of a recipe's list of files is a quantisation."""
    return pattern.startswith(MARK) and pattern not in (MMPROJ, OPTIONAL_MMPROJ)


def chosen_files(names: Sequence[str], patterns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return pattern entry of a recipe's list → the files of ``names`` that it means.

    An entry is a file, a pattern ("FOLDER/*"), ":QUANT", or the mmproj beside the quantisations.
    """
    patterns = tuple(patterns)
    quants = [pattern for pattern in patterns if is_quantisation(pattern)]
    files_by_pattern = {pattern: files_of(names, pattern[len(MARK) :]) for pattern in quants}
    sees = {mmproj(names, files[0]) for files in files_by_pattern.values() if files}
    for pattern in patterns:
        if pattern in (MMPROJ, OPTIONAL_MMPROJ):
            files_by_pattern[pattern] = tuple(sorted(name for name in sees if name))
        elif pattern not in files_by_pattern:
            files_by_pattern[pattern] = tuple(
                name for name in names if fnmatchcase(name, pattern) or name == pattern
            )
    return files_by_pattern


def sizes_left_out(files: Mapping[str, int], kept_names: Collection[str]) -> dict[str, int]:
    """Return the total bytes of GGUF files that are not ``kept``: their names say nothing more."""
    other_sizes = [
        size for name, size in files.items() if _PART.search(name) and name not in kept_names
    ]
    return {"other GGUF files": sum(other_sizes)} if other_sizes else {}


def configuration(start: bytes) -> Mapping[str, Any]:
    """Return the model's facts at the start of a first part, in the words of a `config.json`.

    {} where it is no GGUF, and where its layers differ in a way that is not known here.
    """
    metadata = _metadata(start)
    architecture = metadata.get("general.architecture")
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): metadata[key] for key in metadata if key.startswith(prefix)}
    if any(key.startswith(_OTHER) for key in own):
        return {}
    sizes = [own[key] for key in (*_SAME, *_STATES, *_SIZES) if key in own]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return {}
    config = {_SAME[key]: value for key, value in own.items() if key in _SAME}
    if _LATENT in own and all(own.get(key) for key in _LATENT_HEADS):
        # One head of K is the latent and its rotary part.
        rope_width = own.get("attention.key_length", 0) - own[_LATENT]
        if rope_width <= 0 or own.get("attention.head_count_kv") != 1:
            return {}
        config |= {"kv_lora_rank": own[_LATENT], "qk_rope_head_dim": rope_width}
    if own.get(_WINDOW):
        pattern = own.get(_PATTERN) or _PERIODS.get(str(architecture))
        if not (isinstance(pattern, list) or (isinstance(pattern, int) and pattern > 0)):
            return {}
        config |= _windows(own[_WINDOW], pattern)
    if any(key.startswith("ssm.") for key in own):
        if architecture not in _DELTA_NETS or not all(own.get(key) for key in _STATE_SIZES):
            return {}
        config |= _delta_net(own)
    return config


def _windows(window: int, pattern: int | list[Any]) -> dict[str, Any]:
    """Return a window and its layers; a list has true for each layer with the window."""
    if not isinstance(pattern, list):
        return {"sliding_window": window, "sliding_window_pattern": pattern}
    words = ["sliding_attention" if has_window else "full_attention" for has_window in pattern]
    return {"sliding_window": window, "layer_types": words}


def _delta_net(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of a gated DeltaNet, which llama.cpp keeps in 32 bits."""
    return {
        **{word: own[key] for key, word in _STATES.items()},
        "linear_value_head_dim": own[_INNER] // own["ssm.time_step_rank"],
        "full_attention_interval": own.get("full_attention_interval", 4),
        "mamba_ssm_dtype": "float32",
    }


def _metadata(start: bytes) -> dict[str, Any]:
    """Return the metadata before the tokenizer's; {} where ``start`` breaks off."""
    metadata: dict[str, Any] = {}
    reader = _Reader(start)
    try:
        magic, _, _, count = reader.take("4sIQQ")
        for _ in range(count if magic == b"GGUF" else 0):
            key, (kind,) = reader.text(), reader.take("I")
            if key.startswith("tokenizer."):
                break
            metadata[key] = reader.value(kind)
    except (struct.error, KeyError, UnicodeDecodeError, RecursionError):
        return {}
    return metadata


class _Reader:
    """A reader of one value after the other; `struct.error` where the bytes end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        (length,) = self.take("Q")
        (raw,) = self.take(f"{min(length, len(self.data))}s")
        return bytes(raw).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.take(_SCALARS[kind])[0]
        inner, count = self.take("IQ")
        return [self.value(inner) for _ in range(count)]
