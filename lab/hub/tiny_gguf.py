"""The tiny model as llama.cpp wants it: GGUF files with tokenizer and chat template inside."""

from __future__ import annotations

import json
import math
import struct

from lab.hub import tiny_model as model
from lab.hub.gguf import Value, write_gguf
from lab.hub.safetensors import Tensor

#: The variant that the lab's recipe asks for, in a folder of its own as Unsloth's are.
VARIANT = "UD-IQ2_M"
PARTS = 2

#: A layer's tensors: names in safetensors → in GGUF.
_OF_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_OTHERS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
#: Numbers that llama.cpp gives to kinds of tokens.
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


def tiny_gguf(template: str) -> dict[str, bytes]:
    """Every file of the repository of GGUF files, with the chat template of that file name."""
    tokenizer = model.train_tokenizer()
    metadata = _metadata(tokenizer.to_str(), (model.TEMPLATES / template).read_text())
    tensors = {_name(name): _tensor(t) for name, t in model.weights(tokenizer).items()}
    parts = write_gguf(metadata, tensors, PARTS)
    files = {
        f"{VARIANT}/tiny-qwen3-{VARIANT}-{number:05}-of-{PARTS:05}.gguf": part
        for number, part in enumerate(parts, 1)
    }
    # Another variant, which a recipe for the first variant must not fetch.
    whole = write_gguf(metadata, tensors)[0]
    readme = (model.TEMPLATES / "tiny-qwen3.md").read_bytes()
    return {**files, "tiny-qwen3-BF16.gguf": whole, "README.md": readme}


def _metadata(tokenizer: str, chat_template: str) -> dict[str, Value]:
    bpe = json.loads(tokenizer)["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    kinds = [_CONTROL if token in model.SPECIAL else _NORMAL for token in tokens]
    # The sentences make fewer tokens than the matrices have rows.
    missing = range(len(tokens), model.VOCABULARY)
    tokens += [f"[PAD{number}]" for number in missing]
    kinds += [_UNUSED for _ in missing]
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    return {
        "general.architecture": "qwen3",
        "general.name": "Tiny Qwen3",
        "general.alignment": 32,
        "qwen3.context_length": model.CONTEXT,
        "qwen3.embedding_length": model.HIDDEN,
        "qwen3.block_count": model.LAYERS,
        "qwen3.feed_forward_length": model.INTERMEDIATE,
        "qwen3.attention.head_count": model.HEADS,
        "qwen3.attention.head_count_kv": model.HEADS,
        "qwen3.attention.key_length": model.HEAD_DIMENSION,
        "qwen3.attention.value_length": model.HEAD_DIMENSION,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": model.SPECIAL.index(model.TURN_END),
        "tokenizer.ggml.padding_token_id": model.SPECIAL.index(model.END_OF_TEXT),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": chat_template,
    }


def _name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _OTHERS:
        return f"{_OTHERS[stem]}.weight"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{_OF_LAYER[part]}.weight"


def _tensor(tensor: Tensor) -> Tensor:
    """A tensor of the file; vectors (norms) have 32 bits, in which llama.cpp computes them."""
    if len(tensor.shape) > 1:
        return tensor
    count = math.prod(tensor.shape)
    words = struct.unpack(f"<{count}H", tensor.data)
    return Tensor("F32", tensor.shape, struct.pack(f"<{count}I", *(word << 16 for word in words)))
