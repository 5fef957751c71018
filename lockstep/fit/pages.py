"""The KV cache of one sequence as vLLM keeps it: in blocks of one size for all layers.

Layers of one shape are split into groups of equal length. A block belongs to one group and holds a
page of each of its layers. A recurrent state takes a whole page, so the pages of a hybrid model
grow until the state fits, and what they have left over stays empty.

Read in vLLM 0.26.0, 0.32.0 and 0.33.0, 2026-11: `Platform._align_hybrid_block_size`,
`unify_kv_cache_spec_page_size`, `_get_kv_cache_groups_uniform_page_size`,
`_get_packed_kv_cache_groups` and the specs' `max_memory_usage_bytes`. The functions of 0.26.0 and
0.32.0, called without a GPU, gave the same blocks for every start in ``docs/evidence/fit.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lockstep.checkpoints.architecture import Layers, element_bytes
from lockstep.recipes.sizing import Serving

# Tokens in a page, where no recurrent state asks for more.
BLOCK = 16
# The default on a GPU with 70 GiB or more (`EngineArgs.get_batch_defaults`).
BATCHED_TOKENS = 8192
# Sequences at a time, by default on such a GPU.
SEQUENCES = 1024
# A batch is scheduled while the one before it runs (`VllmConfig.max_concurrent_batches`).
_BATCHES = 2


def with_head(layers: Sequence[Layers]) -> list[Layers]:
    """Return the layers, and the one that a multi-token-prediction head adds.

    The head adds one to the layers that see the whole context. Where those keep entries for several
    tokens, the head sees a window alone.
    """
    seeing = next((group for group in layers if group.kind != "recurrent"), None)
    whole = (group for group in layers if group.kind in ("full", "mla"))
    seeing = next((group for group in whole if group.kv_heads or group.latent), seeing)
    return [replace(group, count=group.count + 1) if group is seeing else group for group in layers]


def sequence_bytes(layers: Sequence[Layers], tokens: int, serving: Serving) -> float:
    """Return the bytes of one sequence on one of the hosts that split each layer.

    `layers` are those of the model, then those of its draft. ArchitectureUnknown for a cache type
    whose size is not known.
    """
    if all(group.kind in ("full", "mla") for group in layers):
        size, hosts = element_bytes(serving.kv_dtype), serving.tensor_parallel
        kept_tokens = math.ceil(tokens / BLOCK) * BLOCK
        return sum(group.bytes_for(kept_tokens, size, hosts) for group in layers)
    pages = _Pages(layers, serving)
    in_flight = _BATCHES * (serving.batched_tokens or BATCHED_TOKENS)

    def blocks(group: Layers) -> int:
        if group.kind == "recurrent":
            return 1 + serving.prefix_caching + pages.draft_pages
        span = pages.span(group)
        if group.kind == "sliding":
            return math.ceil(min(group.window - 1 + in_flight, tokens) / span) + 1
        return math.ceil(tokens / span)

    count = sum(pages.groups(group) * blocks(group) for group in pages.layers)
    # One more block holds tokens that wait for an index entry of their own.
    return pages.block_bytes * (count + any(group.pool > 1 for group in layers))


def state_blocks(layers: Sequence[Layers], room: float, serving: Serving) -> int | None:
    """Return the blocks that `room` bytes of KV cache make; None where no layer is recurrent.

    Each block can hold the state of one sequence. With fewer blocks than sequences at a time, vLLM
    refuses to capture its graphs: "max_num_seqs (1024) exceeds available Mamba cache blocks (252)"
    (`resolve_cudagraph_mode_and_sizes`, read in 0.26.0, seen on a start 2026-11-24).
    """
    if serving.eager or not any(group.kind == "recurrent" for group in layers):
        return None
    return max(0, int(room // _Pages(layers, serving).block_bytes))


class _Pages:
    """The blocks of one size that a model's layers of several kinds share.

    Where attention keeps an index or compressed entries beside other kinds, a block holds a page of
    each of its layers ("packed"), and the others fill blocks of that size. Else a block holds a
    page of each layer of one group.
    """

    def __init__(self, layers: Sequence[Layers], serving: Serving) -> None:
        self.size, self.hosts = element_bytes(serving.kv_dtype), serving.tensor_parallel
        if serving.state_dtype != "auto":
            own = int(element_bytes(serving.state_dtype))
            layers = [replace(group, state_bytes=own) for group in layers]
        self.layers, self.draft_pages = layers, serving.draft_tokens or 0
        self.whole = [group for group in layers if group.kind in ("full", "mla")]
        self.is_packed = any(group.index for group in self.whole)
        states = [self.state(group) for group in layers if group.kind == "recurrent"]
        token = [self._token(group) for group in layers if group.kind != "recurrent"]
        self.block = step = max(group.block or BLOCK for group in self.whole or layers)
        if states and token:
            self.block = step * math.ceil(max(states) / (step * token[0]))
        self.page = max([*states, *(self.block * bytes_a_token for bytes_a_token in token)])
        if self.is_packed:
            self.page = self.block * self._token(self.whole[0])
        counts = [group.count for group in layers]
        fewest, most = min(counts), max(counts)
        self.length = most if most < 1.5 * fewest else fewest

    @property
    def block_bytes(self) -> float:
        """The bytes of a block: a page of each layer of one group."""
        if not self.is_packed:
            return self.page * self.length
        whole = (group.count * group.token_bytes(self.size, self.hosts) for group in self.whole)
        return self.block * sum(whole)

    def groups(self, group: Layers) -> int:
        """Return how many blocks hold a page of each of these layers."""
        if not self.is_packed:
            return math.ceil(group.count / self.length)
        if group in self.whole:
            return int(group is self.whole[0])
        own = self.page if group.kind == "recurrent" else self.span(group) * self._token(group)
        return math.ceil(group.count / max(1, self.block_bytes // own))

    def state(self, group: Layers) -> float:
        return group.state_page(self.hosts, self.draft_pages)

    def span(self, group: Layers) -> int:
        """Return how many tokens are in a page of these layers."""
        if self.is_packed:
            return group.block if group.kind == "sliding" and group.block else self.block
        own = self.block * self._token(group)
        return self.block * int(self.page // own) if self.page % own == 0 else self.block

    def _token(self, group: Layers) -> float:
        """Return the bytes of a token; an index beside K and V or a latent has pages of its own."""
        token_size = group.token_bytes(self.size, self.hosts)
        return token_size - group.index if token_size > group.index else token_size
