"""GGUF: which files of a repository are one model in one quantisation."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

#: Bytes at the start of a first part, in which the model's metadata stands before the tokenizer's.
START = 2**18
# The number of a scalar's type in the format → how `struct` calls it.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
# Behind the architecture's name, with the key of a `config.json` that says the same.
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
# Layers of other kinds: which of them are of which is not read here.
_OTHER = ("ssm.", "shortconv.", "wkv.", "attention.kv_lora_rank", "attention.sliding_window")
#: Before the name of a quantisation, where a list of files would name one.
MARK = ":"
#: What sees, beside the quantisations in such a list: it must be there; it may be.
MMPROJ, OPTIONAL_MMPROJ = f"{MARK}mmproj", f"{MARK}mmproj?"
#: What of a list may be absent.
OPTIONAL = (OPTIONAL_MMPROJ,)
_QUANT = re.compile(
    r"(?<![^-./])(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32)$", re.IGNORECASE
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$|\.gguf$", re.IGNORECASE)
# Beside a model: what sees, what was counted to quantise it, and a draft of its own.
_BESIDE = re.compile(r"mmproj|(?:^|/)(?:imatrix|mtp-)[^/]*$", re.IGNORECASE)


def files_of(names: Iterable[str], quant: str) -> tuple[str, ...]:
    """The files of one quantisation, first part first; () where there is none.

    ``quant`` is as recipes have it after the repository's name ("UD-IQ2_M"). It ends the file's
    name, or that of the folder where the file's has none.
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
    """The parts that a model's files lack, by the numbers in their names."""
    numbers = _PART.search(files[0]) if files else None
    if numbers is None or not numbers[2]:
        return ()
    whole, of = _PART.sub("", files[0]), numbers[2]
    parts = (f"{whole}-{number:05d}-of-{of}.gguf" for number in range(1, int(of) + 1))
    there = {name.lower() for name in files}
    return tuple(part for part in parts if part.lower() not in there)


def mmproj(names: Iterable[str], model: str) -> str | None:
    """The file that sees for a model's first file, as `llama-server -hf` takes it.

    In the nearest folder above, of the nearest width (`find_best_mmproj` of llama.cpp's
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
    """Whether a file is what a model sees by."""
    return "mmproj" in name.lower() and _PART.search(name) is not None


def _width(name: str) -> int:
    """Bits of a quantisation by its name: of Q4_K_M 4, of BF16 16; 0 where it says none."""
    found = re.search(r"\d+", (_QUANT.search(_PART.sub("", name)) or [""])[0])
    return int(found[0]) if found else 0


def quantisations(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each quantisation that some files hold ("UD-IQ2_M") → its files, first part first."""
    listed = sorted(names)
    wholes = {_PART.sub("", name) for name in listed if _PART.search(name)}
    named = {quant: files_of(listed, quant) for quant in sorted(map(_named, wholes))}
    return {quant: files for quant, files in named.items() if files}


def _named(whole: str) -> str:
    """The quantisation of a file by its name, by its folder's, or the name itself."""
    folder, _, stem = whole.rpartition("/")
    found = _QUANT.search(stem) or _QUANT.search(folder)
    return found[0] if found else stem


def is_quantisation(asked: str) -> bool:
    """Whether a thing that was asked for is a quantisation."""
    return asked.startswith(MARK) and asked not in (MMPROJ, OPTIONAL_MMPROJ)


def chosen(names: Sequence[str], asked: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each thing that was asked for → the files of ``names`` that it means.

    A thing is a file, a pattern ("FOLDER/*"), ":QUANT", or what sees beside the quantisations.
    """
    asked = tuple(asked)
    quants = [each for each in asked if is_quantisation(each)]
    found = {each: files_of(names, each[len(MARK) :]) for each in quants}
    sees = {mmproj(names, files[0]) for files in found.values() if files}
    for each in asked:
        if each in (MMPROJ, OPTIONAL_MMPROJ):
            found[each] = tuple(sorted(name for name in sees if name))
        elif each not in found:
            found[each] = tuple(name for name in names if fnmatchcase(name, each) or name == each)
    return found


def sizes_left_out(files: Mapping[str, int], kept: Collection[str]) -> dict[str, int]:
    """Bytes of the GGUF files that are not ``kept``, in all: their names say nothing more."""
    others = [size for name, size in files.items() if _PART.search(name) and name not in kept]
    return {"other GGUF files": sum(others)} if others else {}


def configuration(start: bytes) -> Mapping[str, Any]:
    """What the start of a first part says of the model, in the words of a `config.json`.

    {} where it is no GGUF, and where its layers differ or are not grouped-query attention alone.
    """
    said = _metadata(start)
    prefix = f"{said.get('general.architecture')}."
    own = {key.removeprefix(prefix): said[key] for key in said if key.startswith(prefix)}
    if any(key.startswith(_OTHER) or (key in _SAME and own[key] is None) for key in own):
        return {}
    return {_SAME[key]: value for key, value in own.items() if key in _SAME}


def _metadata(start: bytes) -> dict[str, Any]:
    """What stands before the tokenizer's, by key; a list is None. {} where ``start`` breaks off."""
    found: dict[str, Any] = {}
    reader = _Reader(start)
    try:
        magic, _, _, count = reader.take("4sIQQ")
        for _ in range(count if magic == b"GGUF" else 0):
            key, (kind,) = reader.text(), reader.take("I")
            if key.startswith("tokenizer."):
                break
            found[key] = reader.value(kind)
    except (struct.error, KeyError, UnicodeDecodeError, RecursionError):
        return {}
    return found


class _Reader:
    """Values one after the other; `struct.error` where the bytes end."""

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
