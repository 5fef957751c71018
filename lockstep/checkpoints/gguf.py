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
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
}
# Marks of layers of other kinds; the kind of each layer is not read here.
_OTHER = ("ssm.", "shortconv.", "wkv.", "attention.kv_lora_rank", "attention.sliding_window")
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

    {} where it is no GGUF, and where its layers differ or are not grouped-query attention alone.
    """
    metadata = _metadata(start)
    prefix = f"{metadata.get('general.architecture')}."
    own = {key.removeprefix(prefix): metadata[key] for key in metadata if key.startswith(prefix)}
    if any(key.startswith(_OTHER) or (key in _SAME and own[key] is None) for key in own):
        return {}
    return {_SAME[key]: value for key, value in own.items() if key in _SAME}


def _metadata(start: bytes) -> dict[str, Any]:
    """Return the metadata before the tokenizer's; a list is None. {} where ``start`` breaks off."""
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
        for _ in range(count):
            self.value(inner)
        return None
