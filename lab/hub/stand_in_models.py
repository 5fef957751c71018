"""Stand-ins for large model repositories: right names, right shape of files, a few megabytes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.hub.safetensors import ITEM_SIZE, Tensor, write_safetensors

Files = dict[str, bytes]

#: Chat templates, among others.
MODELS = Path(__file__).parents[1] / "content" / "models"

QWEN = "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
#: The revision that the hub showed in November 2026 (facts of the catalogue).
QWEN_COMMIT = "e347d86b2a6cba4b54ea6f87ca247f60439eed07"
#: Large enough that a cut download is resumed: huggingface_hub keeps whole 10 MB pieces only.
QWEN_BYTES = 48_000_000
QWEN_SEEING = "Intel/Qwen3.6-35B-A3B-int4-mixed-AutoRound"
QWEN_SEEING_COMMIT = "65f69c73f17488236c85c85211f6ba28d7106157"
QWEN_DRAFT = "z-lab/Qwen3.6-35B-A3B-DFlash"
MISTRAL = "mistralai/Mistral-Small-4-119B-2603-NVFP4"
MISTRAL_BASE = "mistralai/Mistral-Small-4-119B-2603"
MISTRAL_DRAFT = "mistralai/Mistral-Small-4-119B-2603-eagle"


@dataclass(frozen=True)
class StandInModel:
    """A repository, its revisions oldest first, and the commit of the newest if it is known."""

    name: str
    licence: str
    revisions: tuple[Files, ...]
    commit: str | None = None


def stand_in_models() -> tuple[StandInModel, ...]:
    """All stand-in repositories; each has an older revision with fewer words in its README."""
    return (
        _two_revisions(QWEN, "apache-2.0", _qwen(), QWEN_COMMIT),
        _two_revisions(QWEN_SEEING, "apache-2.0", _qwen_seeing(), QWEN_SEEING_COMMIT),
        _two_revisions(QWEN_DRAFT, "apache-2.0", _qwen_draft()),
        _two_revisions(MISTRAL, "apache-2.0", _mistral(MISTRAL, "U8", is_quantized=True)),
        _two_revisions(MISTRAL_BASE, "apache-2.0", _mistral_base()),
        _two_revisions(MISTRAL_DRAFT, "apache-2.0", _mistral_draft()),
    )


def _two_revisions(
    name: str, licence: str, files: Files, commit: str | None = None
) -> StandInModel:
    older = files | {"README.md": _readme(name, licence, "")}
    newer = files | {"README.md": _readme(name, licence, "Updated.\n")}
    return StandInModel(name, licence, (older, newer), commit)


def _readme(name: str, licence: str, more: str) -> bytes:
    front = f"---\nlicense: {licence}\npipeline_tag: text-generation\n---\n"
    text = f"# {name.split('/')[1]}\n\nStand-in of the Lockstep lab: random bytes, no model.\n"
    return (front + text + more).encode()


def _qwen() -> Files:
    """Sharded compressed-tensors weights with a visual tower, as the newest revision claims."""
    names = [
        f"model.language_model.layers.{layer}.{part}" for layer in range(40) for part in _PARTS
    ]
    names += [f"model.visual.blocks.{block}.attn.qkv.weight" for block in range(4)]
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": {"num_hidden_layers": 40, "num_experts": 256, "num_key_value_heads": 2},
        "vision_config": {"depth": 27},
        "quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision"},
    }
    return {
        "config.json": _json(config),
        "generation_config.json": _json({"temperature": 0.6, "top_p": 0.95, "top_k": 20}),
        "tokenizer.json": _json({"version": "1.0", "model": {"type": "BPE", "vocab": {}}}),
        "tokenizer_config.json": _json({"tokenizer_class": "Qwen2Tokenizer"}),
        "chat_template.jinja": (MODELS / "qwen3.6.jinja").read_bytes(),
        **_shard_files("model", names, "U8", shards=2, total=QWEN_BYTES),
    }


def _qwen_seeing() -> Files:
    """The same model in four bits by AutoRound, whose visual tower is whole."""
    names = [f"model.language_model.layers.{layer}.mlp.qweight" for layer in range(40)]
    names += [f"model.visual.blocks.{block}.attn.qkv.weight" for block in range(27)]
    files = _qwen()
    quantisation = {
        "quant_method": "auto-round",
        "packing_format": "auto_round:auto_gptq",
        "bits": 4,
    }
    config = {**json.loads(files["config.json"]), "quantization_config": quantisation}
    small = {name: data for name, data in files.items() if "model" not in name}
    weights = _shard_files("model", names, "U8", shards=2, total=8_000_000, seed=QWEN_SEEING)
    return {**small, "config.json": _json(config), **weights}


_PARTS = (
    "linear_attn.in_proj_qkvz.weight_packed",
    "mlp.experts.0.gate_proj.weight_packed",
    "mlp.experts.0.up_proj.weight_packed",
    "mlp.experts.0.down_proj.weight_packed",
    "mlp.shared_expert.gate_proj.weight_packed",
    "input_layernorm.weight",
)


def _qwen_draft() -> Files:
    names = [f"layers.{layer}.self_attn.qkv_proj.weight" for layer in range(8)]
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 8,
        "block_size": 16,
    }
    return {
        "config.json": _json(config),
        "dflash.py": b'"""Stand-in of the draft model\'s code."""\n',
        "model.safetensors": write_safetensors(_tensors(names, "BF16", 600_000, QWEN_DRAFT)),
    }


def _mistral(name: str, dtype: str, *, is_quantized: bool, total: int = 4_000_000) -> Files:
    """Mistral's own layout: no config.json (sgl-project/sglang#28020, 2026-06-12)."""
    names = [f"layers.{layer}.experts.{part}" for layer in range(36) for part in ("w1", "w2", "w3")]
    names += [
        "tok_embeddings.weight",
        "norm.weight",
        "output.weight",
        "vision_encoder.ln_pre.weight",
    ]
    params: dict[str, object] = {"dim": 4096, "n_layers": 36, "moe": {"num_experts": 128}}
    if is_quantized:
        params["quantization_config"] = {
            "config_groups": {"FP4": {"format": "nvfp4-pack-quantized"}}
        }
    return {
        "params.json": _json(params),
        "tokenizer.json": _json({"version": "1.0", "model": {"type": "BPE", "vocab": {}}}),
        "tokenizer_config.json": _json({"tokenizer_class": "MistralCommonBackend"}),
        "processor_config.json": _json({"processor_class": "PixtralProcessor"}),
        "tekken.json": _json({"config": {"version": "v15"}, "vocab": [], "special_tokens": []}),
        "SYSTEM_PROMPT.txt": b"You are a stand-in of Mistral Small 4.\n",
        "chat_template.jinja": (MODELS / "mistral.jinja").read_bytes(),
        **_shard_files("consolidated", names, dtype, shards=3, total=total, seed=name),
    }


def _mistral_base() -> Files:
    """The repository beside the quantized one, which has a config.json as well."""
    config = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "text_config": {"model_type": "mistral4", "num_hidden_layers": 36, "kv_lora_rank": 256},
        "vision_config": {"model_type": "pixtral"},
    }
    weights = _mistral(MISTRAL_BASE, "BF16", is_quantized=False, total=8_000_000)
    return weights | {
        "config.json": _json(config),
        "generation_config.json": _json({"max_length": 262144}),
    }


def _mistral_draft() -> Files:
    names = [f"layers.{layer}.attention.{part}" for layer in range(2) for part in ("wq_a", "wo")]
    tensors = _tensors(names, "BF16", 400_000, MISTRAL_DRAFT)
    return {
        "params.json": _json({"dim": 4096, "n_layers": 2, "eagle": True}),
        "tekken.json": _json({"config": {"version": "v15"}, "vocab": [], "special_tokens": []}),
        "consolidated.safetensors": write_safetensors(tensors),
    }


def _shard_files(
    stem: str, names: list[str], dtype: str, *, shards: int, total: int, seed: str = QWEN
) -> Files:
    """Weights over several files with the index that names the file of each tensor."""
    files: Files = {}
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"{stem}-{shard + 1:05d}-of-{shards:05d}.safetensors"
        members = names[shard::shards]
        tensors = _tensors(members, dtype, total // shards, f"{seed} {shard}")
        files[file] = write_safetensors(tensors)
        weight_map |= dict.fromkeys(members, file)
    size = sum(len(content) for content in files.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    return {f"{stem}.safetensors.index.json": _json(index), **files}


def _tensors(names: list[str], dtype: str, total: int, seed: str) -> Mapping[str, Tensor]:
    dice = random.Random(seed)
    width = ITEM_SIZE[dtype]
    elements = total // len(names) // width
    return {name: Tensor(dtype, (elements,), dice.randbytes(elements * width)) for name in names}


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
