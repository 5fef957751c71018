"""The memory of a model per token and per sequence: KV cache and recurrent state, from shapes.

Everything here is arithmetic on the model's own configuration. Where the shapes are not known the
answer is `ArchitectureUnknown`, never a guess.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lockstep.core.errors import LockstepError
from lockstep.models.step import EXPERTS, Step, step_of

Kind = Literal["full", "sliding", "mla", "recurrent"]

# Bytes per stored element of a KV cache. NVFP4: 4 bit plus one FP8 scale for 16 elements.
KV_ELEMENT_BYTES: dict[str, float] = {
    **dict.fromkeys(("auto", "bfloat16", "bf16", "float16", "half"), 2),
    "float32": 4,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "int8"), 1),
    "nvfp4": 0.5625,
}


class ArchitectureUnknown(LockstepError):
    """The shapes that decide the KV cache are not in the configuration."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Some layers of one kind that all keep the same amount.

    Attributes:
        kind: "full" and "sliding" keep K and V per token; "mla" keeps one latent per token;
            "recurrent" keeps a state of fixed size per sequence (gated DeltaNet, Mamba).
        count: How many layers.
        kv_heads: KV heads (full, sliding).
        head_dim: Elements of K per head; V is taken to be as wide (full, sliding).
        window: Tokens kept at most (sliding).
        latent: Elements per token: compressed KV plus the rotary part (mla).
        index: Elements per token of a sparse-attention index kept beside the latent (mla).
        state: Elements per sequence (recurrent).
        state_bytes: Bytes per state element; both engines default to float32 (recurrent).
        conv: Channels of the convolution before it; 0 where they are not known (recurrent).
        kernel: Positions that this convolution sees (recurrent).
    """

    kind: Kind
    count: int
    kv_heads: int = 0
    head_dim: int = 0
    window: int = 0
    latent: int = 0
    index: int = 0
    state: int = 0
    state_bytes: int = 4
    conv: int = 0
    kernel: int = 4

    def bytes_for(self, tokens: int, element_bytes: float, tensor_parallel: int = 1) -> float:
        """Bytes that these layers keep on one host for one sequence of ``tokens`` tokens."""
        if self.kind == "recurrent":
            return self.count * self.state_page(tensor_parallel)
        kept = min(tokens, self.window) if self.kind == "sliding" else tokens
        return self.count * kept * self.token_bytes(element_bytes, tensor_parallel)

    def token_bytes(self, element_bytes: float, tensor_parallel: int) -> float:
        """Bytes that one layer keeps on one host for one token; none of a recurrent one's state.

        Heads are split over the hosts and never below one per host; an MLA latent is kept whole
        on each.
        """
        if self.kind == "mla":
            return self.latent * element_bytes + self.index
        return math.ceil(self.kv_heads / tensor_parallel) * self.head_dim * 2 * element_bytes

    def state_page(self, tensor_parallel: int, drafted: int = 0) -> float:
        """Bytes of one layer's state, and of the earlier positions that its convolution sees.

        Those have two bytes an element, and one position more for each drafted token.
        """
        seen = self.conv * (self.kernel - 1 + drafted) * 2
        return (self.state * self.state_bytes + seen) / tensor_parallel


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shapes of one model.

    Attributes:
        layers: Its layers, grouped by kind.
        context: Longest context the model was made for, tokens; None: not stated.
        heads: Attention heads of a layer; None: not stated.
        dense: Whether it is known to have no experts.
        vocabulary: Words that it knows; None: not stated.
        width: Elements of its hidden state; None: not stated.
        step: What the widest points of its layers hold for a token; None: not known.
    """

    layers: tuple[Layers, ...]
    context: int | None = None
    heads: int | None = None
    dense: bool = False
    vocabulary: int | None = None
    width: int | None = None
    step: Step | None = None

    def kv_bytes_per_token(self, kv_dtype: str = "auto", tensor_parallel: int = 1) -> float:
        """Bytes added per token once every sliding window is full, on one host."""
        size = element_bytes(kv_dtype)
        growing = [group for group in self.layers if group.kind in ("full", "mla")]
        return sum(group.bytes_for(1, size, tensor_parallel) for group in growing)


def element_bytes(kv_dtype: str) -> float:
    """Bytes per element of a `--kv-cache-dtype` value. ArchitectureUnknown for an unknown type."""
    size = KV_ELEMENT_BYTES.get(str(kv_dtype).lower())
    if size is None:
        raise ArchitectureUnknown(
            "the size of this KV cache type is not known",
            found=str(kv_dtype),
            allowed=", ".join(KV_ELEMENT_BYTES),
        )
    return size


def is_sound(group: Layers) -> bool:
    """Whether some layers have the sizes that their kind needs."""
    sizes = {
        "full": (group.kv_heads, group.head_dim),
        "sliding": (group.kv_heads, group.head_dim, group.window),
        "mla": (group.latent,),
        "recurrent": (group.state,),
    }
    needed = sizes.get(group.kind)
    return needed is not None and all(value > 0 for value in (group.count, *needed))


def from_config(config: Mapping[str, Any], source: str) -> Architecture:
    """The architecture that a Hugging Face ``config.json`` describes.

    Multimodal models keep their language model's shapes under `text_config`. Known layouts:
    grouped-query attention, sliding windows, MLA (with a sparse index), gated DeltaNet hybrids,
    Mamba-2 hybrids written as a pattern.

    Raises:
        ArchitectureUnknown: a size that decides the KV cache is missing.
    """
    text = config.get("text_config") or config.get("llm_config") or config
    if not isinstance(text, Mapping):
        raise ArchitectureUnknown("text_config is not a mapping", where=source)
    reader = _Config(text, source)
    groups = [reader.group(kind, count) for kind, count in Counter(reader.kinds()).items()]
    kept = tuple(group for group in groups if group is not None)
    if not kept or not all(is_sound(group) for group in kept):
        raise ArchitectureUnknown("the configuration's sizes make no sense", where=source)
    return Architecture(
        kept,
        reader.stated("max_position_embeddings"),
        reader.stated("num_attention_heads"),
        dense=not any(text.get(key) for key in EXPERTS),
        vocabulary=reader.stated("vocab_size"),
        width=reader.stated("hidden_size", "n_embd"),
        step=step_of(config, text),
    )


def experts(config: Mapping[str, Any]) -> Literal["none", "plain", "quantised"]:
    """What a configuration says of a mixture of experts: that it is "none", or whether the weights
    are stored "quantised" or "plain". Mistral's params.json has a mapping `moe`.
    """
    parts = [config, *(config.get(key) for key in ("text_config", "llm_config"))]
    said = [part for part in parts if isinstance(part, Mapping)]
    if not any(part.get(key) for part in said for key in (*EXPERTS, "moe")):
        return "none"
    stored = ("quantization_config", "quantization", "compression_config")
    return "quantised" if any(part.get(key) for part in said for key in stored) else "plain"


_LAYER_WORDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mlp": "none",
    "moe": "none",
}
_PATTERN_LETTERS = {"*": "full", "M": "mamba", "-": "none", "E": "none"}


class _Config:
    """Reads sizes out of one text configuration; a missing one is `ArchitectureUnknown`."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self.config = config
        self.source = source

    def stated(self, *keys: str) -> int | None:
        """The first of these that is a size; None where none is."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    def size(self, *keys: str) -> int:
        if (value := self.stated(*keys)) is not None:
            return value
        raise ArchitectureUnknown(
            f"the configuration gives no {' or '.join(keys)}",
            where=self.source,
            remedy="Put the shapes into the catalogue, with their source.",
        )

    def kinds(self) -> list[str]:
        """One word per layer."""
        count = self.size("num_hidden_layers", "n_layer")
        pattern = self.config.get("hybrid_override_pattern")
        if isinstance(pattern, str) and set(pattern) <= set(_PATTERN_LETTERS):
            return [_PATTERN_LETTERS[letter] for letter in pattern]
        types = self.config.get("layer_types") or self.config.get("layers_block_type")
        if isinstance(types, Sequence) and not isinstance(types, str) and types:
            unknown = sorted({str(word) for word in types if word not in _LAYER_WORDS})
            if unknown:
                raise ArchitectureUnknown(
                    "unknown layer type", where=self.source, found=", ".join(unknown)
                )
            return [_LAYER_WORDS[word] for word in types]
        if self.config.get("kv_lora_rank"):
            return ["mla"] * count
        interval = self.config.get("full_attention_interval")
        if isinstance(interval, int) and interval > 0:
            return ["full" if (i + 1) % interval == 0 else "linear" for i in range(count)]
        return ["full"] * count

    def group(self, kind: str, count: int) -> Layers | None:
        if kind == "none":
            return None
        if kind == "full" and self.config.get("kv_lora_rank"):
            kind = "mla"
        if kind == "mla":
            latent = self.size("kv_lora_rank") + self.size("qk_rope_head_dim")
            return Layers("mla", count, latent=latent, index=self._index())
        if kind == "linear":
            return self._delta_net(count)
        if kind == "mamba":
            heads = self.size("mamba_num_heads", "mamba_n_heads")
            width = self.size("mamba_head_dim", "mamba_d_head")
            state = heads * width * self.size("ssm_state_size", "mamba_d_state")
            return Layers("recurrent", count, state=state)
        heads, width = self._attention(kind)
        if kind == "sliding":
            window = self.size("sliding_window", "attention_chunk_size")
            return Layers("sliding", count, kv_heads=heads, head_dim=width, window=window)
        return Layers("full", count, kv_heads=heads, head_dim=width)

    def _attention(self, kind: str) -> tuple[int, int]:
        heads_keys = ["num_key_value_heads", "num_attention_heads", "n_head"]
        if kind == "full":  # Gemma 4 gives its global layers sizes of their own
            heads_keys.insert(0, "num_global_key_value_heads")
        heads = self.size(*heads_keys)
        if kind == "full" and self.config.get("global_head_dim"):
            return heads, self.size("global_head_dim")
        if self.config.get("head_dim"):
            return heads, self.size("head_dim")
        return heads, self.size("hidden_size", "n_embd") // self.size(
            "num_attention_heads", "n_head"
        )

    def _index(self) -> int:
        width = self.config.get("index_head_dim")
        # One FP8 key per token, plus one float32 scale for each 128 elements.
        return width + 4 * math.ceil(width / 128) if isinstance(width, int) and width > 0 else 0

    def _delta_net(self, count: int) -> Layers:
        heads, width = self.size("linear_num_value_heads"), self.size("linear_value_head_dim")
        key = self.size("linear_key_head_dim")
        keys = self.config.get("linear_num_key_heads")
        return Layers(
            "recurrent",
            count,
            state=heads * width * key,
            conv=2 * keys * key + heads * width if isinstance(keys, int) else 0,
            kernel=self.config.get("linear_conv_kernel_dim") or 4,
        )
