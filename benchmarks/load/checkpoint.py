"""Write a checkpoint of a Llama with weights of no meaning: safetensors in shards, or GGUF.

The configuration is Llama 3's with as many layers as the size asks for. Tensors lie in the order of
their names, as `safetensors` writes those of one type. One block of random numbers is written again
and again: no disk and no engine compresses it.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

Shapes = Mapping[str, tuple[int, ...]]

HEADS, KV_HEADS, VOCABULARY = 32, 8, 32000
_BF16, _ALIGNMENT, _BLOCK = 2, 32, 16 * 2**20
#: GGUF's numbers of its types.
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_ELEMENT_F32, _ELEMENT_BF16 = 0, 30
_GGUF = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


@dataclass(frozen=True)
class Llama:
    """The sizes of a Llama.

    Attributes:
        width: Width of the model.
        inner_width: Width within a layer.
        layers: Their number.
    """

    width: int
    inner_width: int
    layers: int

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shapes by name, in the order of names."""
        wide, key_width = self.width, self.width // HEADS * KV_HEADS
        layer = {
            "input_layernorm": (wide,),
            "mlp.down_proj": (wide, self.inner_width),
            "mlp.gate_proj": (self.inner_width, wide),
            "mlp.up_proj": (self.inner_width, wide),
            "post_attention_layernorm": (wide,),
            "self_attn.k_proj": (key_width, wide),
            "self_attn.o_proj": (wide, wide),
            "self_attn.q_proj": (wide, wide),
            "self_attn.v_proj": (key_width, wide),
        }
        shapes: dict[str, tuple[int, ...]] = {
            f"model.layers.{number}.{name}.weight": shape
            for number in range(self.layers)
            for name, shape in layer.items()
        }
        shapes["model.embed_tokens.weight"] = shapes["lm_head.weight"] = (VOCABULARY, wide)
        shapes["model.norm.weight"] = (wide,)
        return dict(sorted(shapes.items()))


def llama_of(size: int) -> Llama:
    """Return a model of about so many bytes, from 6 GB on as wide as one of 8B, else of 1B."""
    width, inner_width = (4096, 14336) if size >= 6e9 else (2048, 8192)
    no_layer, one_layer = (_size(Llama(width, inner_width, count).tensors()) for count in (0, 1))
    layers = round((size - no_layer) / (one_layer - no_layer))
    return Llama(width, inner_width, max(1, layers))


def shards(shapes: Shapes, count: int) -> list[Shapes]:
    """The tensors in so many groups of about the same size, in their order."""
    groups: list[dict[str, tuple[int, ...]]] = [{} for _ in range(count)]
    limit, written_bytes = _size(shapes) / count, 0
    for name, shape in shapes.items():
        groups[min(count - 1, int(written_bytes / limit))][name] = shape
        written_bytes += _bytes(shape)
    return [group for group in groups if group]


def write_safetensors(folder: Path, model: Llama, shard_count: int) -> list[Path]:
    """Write configuration, index and shards into the folder; return the shards in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(model)))
    groups = shards(model.tensors(), shard_count)
    files, places = [], {}
    for number, group in enumerate(groups, 1):
        path = folder / f"model-{number:05}-of-{len(groups):05}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, shape in group.items():
            start, end = end, end + _bytes(shape)
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
            places[name] = path.name
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            _fill(file, end)
        files.append(path)
    index = {"metadata": {"total_size": _size(model.tensors())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return files


def write_gguf(path: Path, model: Llama) -> Path:
    """Write the same model as one GGUF file, with a vocabulary of single letters and numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names, place = [], 0
    # A file that llama.cpp converts has its tensors layer by layer.
    layer_by_layer = sorted(model.tensors().items(), key=lambda item: _natural(item[0]))
    for name, shape in layer_by_layer:
        is_vector = len(shape) == 1
        kind, width = (_ELEMENT_F32, 4) if is_vector else (_ELEMENT_BF16, _BF16)
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        names.append(_text(_gguf_name(name)) + dimensions + struct.pack("<IQ", kind, place))
        place += math.ceil(math.prod(shape) * width / _ALIGNMENT) * _ALIGNMENT
    pairs = list(_metadata(model))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(pairs)) + b"".join((*pairs, *names))
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        _fill(file, place)
    return path


def _config(model: Llama) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": model.width,
        "intermediate_size": model.inner_width,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": model.layers,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }


def _metadata(model: Llama) -> Iterator[bytes]:
    numbers = {
        "llama.context_length": 4096,
        "llama.embedding_length": model.width,
        "llama.block_count": model.layers,
        "llama.feed_forward_length": model.inner_width,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": model.width // HEADS,
        "llama.vocab_size": VOCABULARY,
    }
    yield _text("general.architecture") + struct.pack("<I", _STRING) + _text("llama")
    for key, number in numbers.items():
        yield _text(key) + struct.pack("<II", _UINT32, number)
    yield _text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", _FLOAT32, 1e-5)
    yield _text("tokenizer.ggml.model") + struct.pack("<I", _STRING) + _text("llama")
    # llama.cpp's tokenizer wants each byte as a token, and marks of the beginning and the end.
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"<0x{number:02X}>" for number in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    tokens += [f"w{number}" for number in range(VOCABULARY - len(tokens))]
    kinds += [1] * (VOCABULARY - len(kinds))
    yield _list("tokenizer.ggml.tokens", _STRING, (_text(token) for token in tokens))
    yield _list(
        "tokenizer.ggml.scores", _FLOAT32, (struct.pack("<f", -k) for k in range(len(tokens)))
    )
    yield _list("tokenizer.ggml.token_type", _INT32, (struct.pack("<i", kind) for kind in kinds))


def _list(key: str, kind: int, elements: Iterable[bytes]) -> bytes:
    found = list(elements)
    return _text(key) + struct.pack("<IIQ", _ARRAY, kind, len(found)) + b"".join(found)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _GGUF:
        return f"{_GGUF[stem]}.weight"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{_GGUF[part]}.weight"


def _natural(name: str) -> tuple[int, str]:
    words = name.split(".")
    return (int(words[2]) if words[1] == "layers" else -1, name)


def _fill(file: BinaryIO, size: int) -> None:
    """Write so many bytes; read as bf16 or f32, each is a number of about 0.01."""
    block = bytearray(os.urandom(_BLOCK))
    block[1::2] = bytes([0x3C]) * (_BLOCK // 2)
    for place in range(0, size, _BLOCK):
        file.write(block[: min(_BLOCK, size - place)])


def _bytes(shape: tuple[int, ...]) -> int:
    return math.prod(shape) * _BF16


def _size(shapes: Shapes) -> int:
    return sum(map(_bytes, shapes.values()))
