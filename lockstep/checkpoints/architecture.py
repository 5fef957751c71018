"""The memory of a model per token and per sequence: KV cache and recurrent state, from shapes.

This module only computes; `configuration` reads the shapes. Where shapes are not known, the answer
is `ArchitectureUnknown`, never a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lockstep.checkpoints.step import ForwardStep
from lockstep.core.errors import LockstepError

Kind = Literal["full", "sliding", "mla", "recurrent"]

# Bytes per stored element of a KV cache. NVFP4: 4 bit plus one FP8 scale for 16 elements.
KV_ELEMENT_BYTES: dict[str, float] = {
    **dict.fromkeys(("auto", "bfloat16", "bf16", "float16", "half"), 2),
    "float32": 4,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "int8"), 1),
    "nvfp4": 0.5625,
    # llama.cpp's blocks of 32 elements with their scales (ggml-common.h, 2026-11).
    **{"f32": 4, "f16": 2, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32},
    **{"q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32},
}
# Bytes per token of a latent in FP8 beside an index: 512 elements, their scales and 64 elements of
# 16 bits (`fp8_ds_mla` of vLLM 0.33.0). A Spark keeps it so even without an FP8 cache.
SPARSE_LATENT = 656


class ArchitectureUnknown(LockstepError):
    """Shapes that decide the KV cache are not in the configuration."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind that all keep the same amount.

    Attributes:
        kind: "full" and "sliding" keep K and V per token; "mla" keeps one latent per token;
            "recurrent" keeps a state of fixed size per sequence (DeltaNet, Mamba, convolution).
        count: Number of layers.
        kv_heads: KV heads (full, sliding).
        head_dim: Elements of K per head (full, sliding).
        value_dim: Elements of V per head; 0: as many as of K (full, sliding).
        window: Tokens kept at most (sliding).
        latent: Elements per token: compressed KV plus the rotary part (mla, sliding).
        index: Bytes per token that do not depend on the cache's type: the index of sparse
            attention, entries that one layer keeps for several tokens (all but recurrent).
        pool: Tokens for which there is one entry of the index (full, mla).
        block: Tokens of which a page holds a multiple, where that is not 16.
        state: Elements per sequence (recurrent).
        state_bytes: Bytes per state element (recurrent).
        conv: Channels of the convolution before it; 0 where there is none (recurrent).
        kernel: Positions that this convolution sees (recurrent).
    """

    kind: Kind
    count: int
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    window: int = 0
    latent: int = 0
    index: float = 0
    pool: int = 1
    block: int = 0
    state: int = 0
    state_bytes: int = 4
    conv: int = 0
    kernel: int = 4

    def bytes_for(self, tokens: int, element_bytes: float, tensor_parallel: int = 1) -> float:
        """Return the bytes that these layers keep on one host for one sequence of ``tokens``."""
        if self.kind == "recurrent":
            return self.count * self.state_page(tensor_parallel)
        kept_tokens = min(tokens, self.window) if self.kind == "sliding" else tokens
        return self.count * kept_tokens * self.token_bytes(element_bytes, tensor_parallel)

    def token_bytes(self, element_bytes: float, tensor_parallel: int) -> float:
        """Return the bytes that one layer keeps on one host per token, without a recurrent state.

        Heads are split over the hosts and never below one per host; an MLA latent is kept whole on
        each.
        """
        wide = self.head_dim + (self.value_dim or self.head_dim)
        heads = math.ceil(self.kv_heads / tensor_parallel) * wide * element_bytes
        latent = self.latent * element_bytes
        if self.kind == "mla" and self.index and latent and element_bytes <= 1:
            latent = max(latent, SPARSE_LATENT)
        return heads + latent + self.index

    def state_page(self, tensor_parallel: int, draft_tokens: int = 0) -> float:
        """Return the bytes of a layer's state, and of the earlier positions for its convolution.

        These positions have two bytes an element, and there is one more for each drafted token.
        """
        conv_bytes = self.conv * (self.kernel - 1 + draft_tokens) * 2
        return (self.state * self.state_bytes + conv_bytes) / tensor_parallel


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shapes of one model.

    Attributes:
        layers: Its layers, grouped by kind.
        context: Longest context the model was made for, tokens; None: not stated.
        heads: Attention heads of a layer; None: not stated.
        dense: Whether the model is known to have no experts.
        vocabulary: Words that the model knows; None: not stated.
        width: Elements of its hidden state; None: not stated.
        step: Content of its layers' widest points for a token; None: not known.
    """

    layers: tuple[Layers, ...]
    context: int | None = None
    heads: int | None = None
    dense: bool = False
    vocabulary: int | None = None
    width: int | None = None
    step: ForwardStep | None = None

    def kv_bytes_per_token(self, kv_dtype: str = "auto", tensor_parallel: int = 1) -> float:
        """Return the bytes added per token once every sliding window is full, on one host."""
        size = element_bytes(kv_dtype)
        growing = [group for group in self.layers if group.kind in ("full", "mla")]
        return sum(group.bytes_for(1, size, tensor_parallel) for group in growing)


def element_bytes(kv_dtype: str) -> float:
    """Return the bytes per element of a `--kv-cache-dtype` value; the mean of both for "K/V".

    ArchitectureUnknown for an unknown type.
    """
    if "/" in str(kv_dtype):
        return sum(map(element_bytes, str(kv_dtype).split("/"))) / 2
    size = KV_ELEMENT_BYTES.get(str(kv_dtype).lower())
    if size is None:
        raise ArchitectureUnknown(
            "the size of this KV cache type is not known",
            found=str(kv_dtype),
            allowed=", ".join(KV_ELEMENT_BYTES),
        )
    return size


def is_sound(group: Layers) -> bool:
    """Tell whether some layers have the sizes that their kind needs."""
    heads = min(group.kv_heads, group.head_dim)
    sizes = {
        "full": (heads,),
        "sliding": (max(heads, group.latent, group.index), group.window),
        "mla": (max(group.latent, group.index),),
        "recurrent": (max(group.state, group.conv),),
    }
    needed_sizes = sizes.get(group.kind)
    return needed_sizes is not None and all(value > 0 for value in (group.count, *needed_sizes))
