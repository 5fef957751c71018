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
from pathlib import Path
from typing import Any, BinaryIO

Shapes = Mapping[str, tuple[int, ...]]

#: Width of a layer. 2 GiB have about as many layers then as a model of 8B has.
HIDDEN, BETWEEN, HEADS, KV_HEADS, VOCABULARY = 2048, 8192, 32, 8, 32000
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


def tensors(layers: int) -> dict[str, tuple[int, ...]]:
    """The shapes by name of a model of so many layers, in the order of names."""
    key_width = HIDDEN // HEADS * KV_HEADS
    layer = {
        "input_layernorm": (HIDDEN,),
        "mlp.down_proj": (HIDDEN, BETWEEN),
        "mlp.gate_proj": (BETWEEN, HIDDEN),
        "mlp.up_proj": (BETWEEN, HIDDEN),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.k_proj": (key_width, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.v_proj": (key_width, HIDDEN),
    }
    found = {
        f"model.layers.{number}.{name}.weight": shape
        for number in range(layers)
        for name, shape in layer.items()
    }
    ends = {"model.embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)}
    found |= {f"{name}.weight": shape for name, shape in ends.items()}
    found["model.norm.weight"] = (HIDDEN,)
    return dict(sorted(found.items()))


def layers_of(size: int) -> int:
    """Return the number of layers that make a checkpoint of about so many bytes."""
    end_bytes, smallest = (_size(tensors(count)) for count in (0, 1))
    return max(1, round((size - end_bytes) / (smallest - end_bytes)))


def shards(shapes: Shapes, count: int) -> list[Shapes]:
    """The tensors in so many groups of about the same size, in their order."""
    groups: list[dict[str, tuple[int, ...]]] = [{} for _ in range(count)]
    limit, written_bytes = _size(shapes) / count, 0
    for name, shape in shapes.items():
        groups[min(count - 1, int(written_bytes / limit))][name] = shape
        written_bytes += _bytes(shape)
    return [group for group in groups if group]


def write_safetensors(folder: Path, layers: int, shard_count: int) -> list[Path]:
    """Write configuration, index and shards into the folder; return the shards in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(layers)))
    groups = shards(tensors(layers), shard_count)
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
    index = {"metadata": {"total_size": _size(tensors(layers))}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return files


def write_gguf(path: Path, layers: int) -> Path:
    """Write the same model as one GGUF file, with a vocabulary of single letters and numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names, place = [], 0
    # A file that llama.cpp converts has its tensors layer by layer.
    layer_by_layer = sorted(tensors(layers).items(), key=lambda item: _natural(item[0]))
    for name, shape in layer_by_layer:
        is_vector = len(shape) == 1
        kind, width = (_ELEMENT_F32, 4) if is_vector else (_ELEMENT_BF16, _BF16)
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        names.append(_text(_gguf_name(name)) + dimensions + struct.pack("<IQ", kind, place))
        place += math.ceil(math.prod(shape) * width / _ALIGNMENT) * _ALIGNMENT
    pairs = list(_metadata(layers))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(pairs)) + b"".join((*pairs, *names))
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        _fill(file, place)
    return path


def _config(layers: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": BETWEEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": layers,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }


def _metadata(layers: int) -> Iterator[bytes]:
    numbers = {
        "llama.context_length": 4096,
        "llama.embedding_length": HIDDEN,
        "llama.block_count": layers,
        "llama.feed_forward_length": BETWEEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": HIDDEN // HEADS,
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
