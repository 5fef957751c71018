"""The lab's GGUF files, read back by the format's specification (version 3)."""

from __future__ import annotations

import io
import json
import math
import re
import struct
from typing import Any

import pytest

from lab.hub import tiny_model as model
from lab.hub.gguf import Value, write_gguf
from lab.hub.safetensors import ITEM_SIZE, Tensor
from lab.hub.tiny_gguf import tiny_gguf

_NUMBERS = {2: "<H", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_ELEMENTS = {0: "F32", 30: "BF16"}


class Reader(io.BytesIO):
    def number(self, form: str) -> Any:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.read(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            of, length = self.number("<I"), self.number("<Q")
            return [self.value(of) for _ in range(length)]
        return self.number(_NUMBERS[kind])


def read(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    file = Reader(data)
    assert (file.read(4), file.number("<I")) == (b"GGUF", 3)
    count, pairs = file.number("<Q"), file.number("<Q")
    metadata = {file.text(): file.value(file.number("<I")) for _ in range(pairs)}
    described = []
    for _ in range(count):
        name, dimensions = file.text(), file.number("<I")
        shape = tuple(file.number("<Q") for _ in range(dimensions))[::-1]
        described.append((name, shape, _ELEMENTS[file.number("<I")], file.number("<Q")))
    start = file.tell() + -file.tell() % 32
    tensors = {}
    for name, shape, dtype, offset in described:
        assert offset % 32 == 0
        file.seek(start + offset)
        size = math.prod(shape) * ITEM_SIZE[dtype]
        tensors[name] = Tensor(dtype, shape, file.read(size))
        assert len(tensors[name].data) == size
    return metadata, tensors


TENSORS = {
    "a": Tensor("BF16", (2, 3), b"abcdefghijkl"),
    "b": Tensor("F32", (5,), bytes(range(20))),
    "c": Tensor("F32", (1,), b"last"),
}
METADATA: dict[str, Value] = {
    "name": "é",
    "count": 7,
    "rate": 0.5,
    "on": True,
    "words": ["x", "yz"],
    "ids": [1, 3],
}


def test_a_file_has_its_metadata_and_tensors() -> None:
    (data,) = write_gguf(METADATA, TENSORS)
    assert read(data) == (METADATA, TENSORS)


def test_parts_have_all_tensors_once_and_the_first_one_the_metadata() -> None:
    parts = [read(data) for data in write_gguf(METADATA, TENSORS, 2)]
    assert [list(tensors) for _, tensors in parts] == [["a", "b"], ["c"]]
    split = {"split.count": 2, "split.tensors.count": 3}
    assert parts[0][0] == METADATA | split | {"split.no": 0}
    assert parts[1][0] == split | {"split.no": 1}


def test_a_tensor_with_too_few_bytes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a: expected 12 bytes, found 3"):
        write_gguf({}, {"a": Tensor("BF16", (2, 3), b"123")})


def test_more_parts_than_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="4 parts of 3 tensors"):
        write_gguf({}, TENSORS, 4)


def test_the_tiny_model_is_offered_as_unsloth_offers_large_ones() -> None:
    names = [name for name in tiny_gguf("chatml.jinja") if name.endswith(".gguf")]
    assert names[:2] == [
        "UD-IQ2_M/tiny-qwen3-UD-IQ2_M-00001-of-00002.gguf",
        "UD-IQ2_M/tiny-qwen3-UD-IQ2_M-00002-of-00002.gguf",
    ]
    # What a recipe of the folder's variant must leave alone.
    assert re.fullmatch(r"[^/]+\.gguf", names[2])


def test_the_tiny_model_has_every_tensor_of_the_safetensors() -> None:
    files = tiny_gguf("chatml.jinja")
    (metadata, tensors), (_, others) = (read(files[name]) for name in sorted(files)[1:3])
    assert not tensors.keys() & others.keys()
    tensors |= others
    expected = model.weights(model.train_tokenizer())
    assert len(tensors) == len(expected) == metadata["split.tensors.count"]
    embedding = tensors["token_embd.weight"]
    assert embedding == expected["model.embed_tokens.weight"]
    assert tensors["blk.1.ffn_down.weight"] == expected["model.layers.1.mlp.down_proj.weight"]
    norm = tensors["output_norm.weight"]
    assert (norm.dtype, struct.unpack("<f", norm.data[:4])) == ("F32", (1.0,))
    # llama.cpp counts rows by tokens, and ends where the two disagree.
    assert len(metadata["tokenizer.ggml.tokens"]) == embedding.shape[0]


def test_the_tiny_model_brings_tokenizer_and_chat_template() -> None:
    files = tiny_gguf("chatml.jinja")
    metadata, _ = read(files["tiny-qwen3-BF16.gguf"])
    vocabulary = json.loads(model.train_tokenizer().to_str())["model"]["vocab"]
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert {token: tokens.index(token) for token in vocabulary} == vocabulary
    assert [kinds[tokens.index(token)] for token in model.SPECIAL] == [3, 3, 3]
    assert tokens[metadata["tokenizer.ggml.eos_token_id"]] == model.TURN_END
    assert all(len(merge.split(" ")) == 2 for merge in metadata["tokenizer.ggml.merges"])
    assert "<|im_start|>assistant" in metadata["tokenizer.chat_template"]
