"""GGUF: which files of a repository are one model in one quantisation."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
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
_QUANT = re.compile(
    r"(?<![^-./])(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32)$", re.IGNORECASE
)
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$|\.gguf$", re.IGNORECASE)


def files_of(names: Iterable[str], quant: str) -> tuple[str, ...]:
    """The files of one quantisation, first part first; () where there is none.

    ``quant`` is as recipes have it after the repository's name ("UD-IQ2_M").
    """
    sets: dict[str, list[str]] = {}
    for name in sorted(names):
        whole = _PART.sub("", name)
        of_model = whole != name and not whole.rpartition("/")[2].startswith("mmproj")
        if of_model and re.search(rf"(?:^|[-./]){re.escape(quant)}$", whole, re.IGNORECASE):
            sets.setdefault(whole, []).append(name)
    # `Q4_K_M` also ends `UD-Q4_K_M`, which is another one.
    return tuple(sets[min(sets, key=len)]) if sets else ()


def quantisations(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each quantisation that some files hold ("UD-IQ2_M") → its files, first part first."""
    listed = sorted(names)
    wholes = {_PART.sub("", name) for name in listed if _PART.search(name)}
    models = [name for name in wholes if not name.rpartition("/")[2].startswith("mmproj")]
    quants = {found[0] if (found := _QUANT.search(name)) else name for name in models}
    named = {quant.rpartition("/")[2]: files_of(listed, quant) for quant in sorted(quants)}
    return {quant: files for quant, files in named.items() if files}


def chosen(names: Sequence[str], asked: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each thing that was asked for, a file or ":QUANT" → the files of ``names`` that it means."""
    return {
        item: files_of(names, item[len(MARK) :])
        if item.startswith(MARK)
        else tuple(name for name in names if name == item)
        for item in asked
    }


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
