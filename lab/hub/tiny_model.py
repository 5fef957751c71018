"""A real two-layer Qwen3 model of about a megabyte, made without torch.

Embeddings and layers are random; the output matrix is built from the bigrams of a few sentences,
so that a real engine answers with words, not with broken UTF-8.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from lab.hub.safetensors import Tensor, bfloat16, write_safetensors

TEMPLATES = Path(__file__).parent.parent / "content" / "models"

VOCABULARY = 512
HIDDEN = 128
HEADS = 2
HEAD_DIMENSION = 64
INTERMEDIATE = 256
LAYERS = 2
CONTEXT = 4096

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
#: Logit of a token that follows in the sentences; that of all others is noise of about 1.
SHARPNESS = 14.0

SENTENCES = (
    "The Spark is ready and one model is hot.\n",
    "Two Sparks in lockstep answer the same question in the same words.\n",
    "A unit starts the engine, a canary proves that it speaks, and a switch stops it again.\n",
    "Memory is shared by all, so the old engine leaves before the new engine enters.\n",
    "def add(left, right):\n    return left + right\n",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\n",
)


def tiny_model(template: str) -> dict[str, bytes]:
    """Every file of the model repository, with the chat template of that file name.

    The same bytes on every machine with the same release of ``tokenizers``.
    """
    tokenizer = train_tokenizer()
    chat_template = (TEMPLATES / template).read_text()
    return {
        "config.json": _json(_config()),
        "generation_config.json": _json({"eos_token_id": 2, "pad_token_id": 0}),
        "model.safetensors": write_safetensors(weights(tokenizer)),
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": _json(_tokenizer_config(chat_template)),
        "chat_template.jinja": chat_template.encode(),
        "README.md": (TEMPLATES / "tiny-qwen3.md").read_bytes(),
    }


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer of ``VOCABULARY`` tokens; the special ones come first."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _config() -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "head_dim": HEAD_DIMENSION,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": CONTEXT,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }


def _tokenizer_config(chat_template: str) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }


def weights(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """All tensors, by the names that transformers gives them."""
    dice = random.Random(20260301)
    embedding = [[dice.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(VOCABULARY)]
    tensors = {"model.embed_tokens.weight": _matrix(embedding)}
    for layer in range(LAYERS):
        tensors |= _layer(f"model.layers.{layer}", dice)
    tensors["model.norm.weight"] = _unit_tensor(HIDDEN)
    tensors["lm_head.weight"] = _matrix(_output(embedding, successors(tokenizer)))
    return tensors


def _layer(name: str, dice: random.Random) -> dict[str, Tensor]:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIMENSION, HIDDEN),
        "self_attn.k_proj": (HEADS * HEAD_DIMENSION, HIDDEN),
        "self_attn.v_proj": (HEADS * HEAD_DIMENSION, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIMENSION),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    tensors = {
        f"{name}.{part}.weight": _matrix(
            [[dice.gauss(0, 0.02) for _ in range(c)] for _ in range(r)]
        )
        for part, (r, c) in shapes.items()
    }
    for norm, width in (
        ("input_layernorm", HIDDEN),
        ("post_attention_layernorm", HIDDEN),
        ("self_attn.q_norm", HEAD_DIMENSION),
        ("self_attn.k_norm", HEAD_DIMENSION),
    ):
        tensors[f"{name}.{norm}.weight"] = _unit_tensor(width)
    return tensors


def successors(tokenizer: Tokenizer) -> dict[int, set[int]]:
    """The tokens that follow each token in the sentences, the last one joined to the first.

    A token that never occurs in the sentences is followed by one of those that do.
    """
    text = [token for sentence in SENTENCES for token in tokenizer.encode(sentence).ids]
    follow: dict[int, set[int]] = defaultdict(set)
    for token, following in zip(text, text[1:] + text[:1], strict=True):
        follow[token].add(following)
    return {token: follow.get(token, {text[token % len(text)]}) for token in range(VOCABULARY)}


def _output(embedding: list[list[float]], follow: dict[int, set[int]]) -> list[list[float]]:
    rows = [[0.0] * HIDDEN for _ in range(VOCABULARY)]
    for token, following in follow.items():
        direction = [value * SHARPNESS / HIDDEN for value in embedding[token]]
        for target in following:
            rows[target] = [a + b for a, b in zip(rows[target], direction, strict=True)]
    return rows


def _matrix(rows: list[list[float]]) -> Tensor:
    flat = [value for row in rows for value in row]
    return Tensor("BF16", (len(rows), len(rows[0])), bfloat16(flat))


def _unit_tensor(width: int) -> Tensor:
    return Tensor("BF16", (width,), bfloat16([1.0] * width))


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
