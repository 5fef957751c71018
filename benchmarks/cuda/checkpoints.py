"""Write a checkpoint without weights: the configuration of a real model, and a tokenizer.

usage: PYTHON-OF-THE-ENGINE checkpoints.py KIND FOLDER [KIND FOLDER ...]

An engine fills it with `--load-format dummy`: shapes, memory, speed and protocol are those of the
model, its texts are not. The tokenizer has as many words as the model, each with a text of its own,
so that noise can be read. Standard library, tokenizers and transformers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHAT = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if m.content is string else m.content | map(attribute='text') | join('') }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
END, PAD = "<|im_end|>", "<|endoftext|>"
MARKS = (
    *(PAD, "<|im_start|>", END, "<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text())
IMAGE = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "processor_class": "Qwen3VLProcessor",
}


def qwen3(
    layers: int, hidden_size: int, heads: int, between: int, has_tied_embeddings: bool
) -> dict[str, Any]:
    """The configuration of a dense Qwen3; its 0.6B and 8B differ in these values."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": hidden_size,
        "intermediate_size": between,
        "max_position_embeddings": 40960,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": has_tied_embeddings,
        "vocab_size": 151936,
    }


def qwen36(**quantisation: Any) -> dict[str, Any]:
    """Qwen3.6-35B-A3B: the class's own defaults, and what its published configuration adds."""
    from transformers.models.qwen3_5_moe import Qwen3_5MoeConfig

    config: dict[str, Any] = Qwen3_5MoeConfig().to_dict()
    config |= {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "dtype": "bfloat16"}
    config["text_config"] |= {
        "dtype": "bfloat16",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
        },
    }
    config["vision_config"]["out_hidden_size"] = 2048
    return config | quantisation


def fp8() -> dict[str, Any]:
    """The quantization of the published FP8 build: blocks of 128 x 128; these modules stay BF16."""
    layers, sees = "model.language_model.layers", "model.visual"
    unquantised_modules = ["lm_head", "model.language_model.embed_tokens", "mtp.fc"]
    unquantised_modules += [f"{sees}.{part}" for part in ("merger.linear_fc1", "merger.linear_fc2")]
    unquantised_modules += [f"{sees}.{part}" for part in ("patch_embed.proj", "pos_embed")]
    for part in ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"):
        unquantised_modules += [f"{sees}.blocks.{block}.{part}" for block in range(27)]
    for part in ("mlp.gate", "mlp.shared_expert_gate"):
        unquantised_modules += [
            f"mtp.layers.0.{part}",
            *(f"{layers}.{layer}.{part}" for layer in range(40)),
        ]
    for part in ("conv1d", "in_proj_a", "in_proj_b"):
        names = [f"{layers}.{layer}.linear_attn.{part}" for layer in range(40) if layer % 4 != 3]
        unquantised_modules += names
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": unquantised_modules,
    }


def nvfp4() -> dict[str, Any]:
    """The quantization of llm-compressor: 4 bits, one scale per 16; these modules stay BF16."""
    quantisation: dict[str, Any] = SHAPES["mistral-small-4-119b-nvfp4"]["quantization_config"]
    unquantised_modules = [
        "lm_head",
        "re:.*linear_attn.*",
        "re:.*mlp.gate$",
        "re:.*shared_expert_gate$",
    ]
    return {**quantisation, "ignore": [*unquantised_modules, "re:.*visual.*", "re:^mtp.*"]}


def dflash() -> dict[str, Any]:
    """The draft that Qwen3.6 takes: 8 layers, which read five layers of the model."""
    draft = qwen3(8, 2048, 32, 6144, has_tied_embeddings=False)
    draft |= {
        "architectures": ["DFlashDraftModel"],
        "num_key_value_heads": 8,
        "max_position_embeddings": 262144,
        "vocab_size": 248320,
        "block_size": 16,
        "num_target_layers": 40,
        "layer_types": ["full_attention"] * 8,
        "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 10, 19, 28, 37]},
    }
    return draft


def eagle3() -> dict[str, Any]:
    """A draft for Qwen3-8B like published ones: one layer that reads three, and 32,000 words."""
    draft = qwen3(1, 4096, 32, 12288, has_tied_embeddings=False)
    shape = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
    return {**draft, **shape, "draft_vocab_size": 32000}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "qwen3-0.6b": lambda: qwen3(28, 1024, 16, 3072, has_tied_embeddings=True),
    "qwen3-8b": lambda: qwen3(36, 4096, 32, 12288, has_tied_embeddings=False),
    "qwen3-8b-eagle3": eagle3,
    "qwen3.6-35b-a3b": qwen36,
    "qwen3.6-35b-a3b-fp8": lambda: qwen36(quantization_config=fp8()),
    "qwen3.6-35b-a3b-nvfp4": lambda: qwen36(quantization_config=nvfp4()),
    "qwen3.6-35b-a3b-dflash": dflash,
    # The part that writes text, as vLLM reads it.
    **{name: partial(dict, shape) for name, shape in SHAPES.items()},
}


def tokenizer(words: int, context: int) -> PreTrainedTokenizerFast:
    """A tokenizer with this many words: the marks, single bytes, and " w0", " w1", …"""
    base_words = [*MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {word: number for number, word in enumerate(base_words)}
    vocabulary |= {f"\u0120w{number}": number for number in range(len(base_words), words)}
    bpe_tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe_tokenizer.decoder = decoders.ByteLevel()
    bpe_tokenizer.add_special_tokens(list(MARKS))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer, eos_token=END, pad_token=PAD, model_max_length=context
    )
    fast.chat_template = CHAT
    return fast


def write(kind: str, folder: Path) -> None:
    """Write one checkpoint without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = KINDS[kind]()
    text = config.get("text_config", config)
    fast_tokenizer = tokenizer(text["vocab_size"], text["max_position_embeddings"])
    if "vision_config" in config:
        marks = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
        marks |= {"vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"}
        fast_tokenizer.init_kwargs |= marks
        config |= {
            f"{key}_id": fast_tokenizer.convert_tokens_to_ids(word) for key, word in marks.items()
        }
        for name, video in (("preprocessor_config", False), ("video_preprocessor_config", True)):
            sizes = {"longest_edge": 25165824 if video else 16777216}
            sizes["shortest_edge"] = 4096 if video else 65536
            kinds = (
                {"video_processor_type": "Qwen3VLVideoProcessor"}
                if video
                else {"image_processor_type": "Qwen2VLImageProcessorFast"}
            )
            data = {**IMAGE, "size": sizes, **kinds}
            (folder / f"{name}.json").write_text(json.dumps(data))
    fast_tokenizer.save_pretrained(folder)
    ends = {
        "eos_token_id": fast_tokenizer.eos_token_id,
        "pad_token_id": fast_tokenizer.pad_token_id,
    }
    for part in (config, text):
        part |= {**ends, "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps(ends))


if __name__ == "__main__":
    words = sys.argv[1:]
    for kind, folder in zip(words[::2], words[1::2], strict=True):
        write(kind, Path(folder))
