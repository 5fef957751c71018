"""The layers of a model, read from its own `config.json` or `params.json`, or a GGUF file's start.

Read in the configurations of transformers 5.24.0 and in the models of vLLM 0.26.0 to 0.33.0,
2026-11. A key that may change the cache and is not known here makes the shapes unknown, by name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from lockstep.checkpoints.architecture import (
    KV_ELEMENT_BYTES,
    Architecture,
    ArchitectureUnknown,
    Layers,
    is_sound,
)
from lockstep.checkpoints.cache_keys import PLACING, may_change_cache
from lockstep.checkpoints.step import EXPERTS, step_of

_MOST_LAYERS = 10_000
_SENSELESS = "the configuration's sizes make no sense"
# Keys that hold the language model's configuration in one of several parts.
_PARTS = (
    "thinker_config",
    "text_config",
    "llm_config",
    "language_config",
    "transformer_layer_config",
)
# Words of Mistral's params.json -> those of a config.json (`_remap_general_mistral_args`).
_MISTRAL = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "max_seq_len": "max_position_embeddings",
}
# Defaults of a class of transformers where a published configuration leaves them out. Gemma 3 12B
# says neither its heads' size nor which layers see the whole context.
_GEMMA: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_USUAL: dict[str, Mapping[str, Any]] = {
    "llama": {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096},
    "mistral": {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
    },
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma3_text": {
        **_GEMMA,
        "num_hidden_layers": 26,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "rope_local_base_freq": 10000.0,
    },
    "gemma3n_text": {
        **_GEMMA,
        "num_key_value_heads": 2,
        "sliding_window": 512,
        "sliding_window_pattern": 5,
        "num_kv_shared_layers": 15,
    },
    "gemma4_text": {
        **_GEMMA,
        "global_head_dim": 512,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "hidden_size_per_layer_input": 256,
    },
    "llama4_text": {
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
    },
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "exaone4": {"sliding_window_pattern": 4},
    "olmo3": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    "jamba": {"attn_layer_period": 8, "attn_layer_offset": 4},
    "nemotron_h": {"n_groups": 8, "conv_kernel": 4},
    "falcon_h1": {"layer_types": "parallel"},
    "qwen3_next": {"full_attention_interval": 4},
}
# Classes whose layers all keep the stated window, where nothing else is stated.
_WINDOWED = ("mistral", "mixtral", "ministral", "phi3", "starcoder2", "voxtral_realtime_text")
_WORDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "indexed_attention": "indexed",
    "deepseek_sparse_attention": "indexed",
    "qwen_sparse_attention": "indexed",
    "minimax_m3_sparse": "selected",
    "compressed_sparse_attention": "compressed 4",
    "heavily_compressed_attention": "compressed 128",
    "hybrid": "hybrid",
    "hybrid_sliding": "hybrid sliding",
    "conv": "conv",
    "mlp": "none",
    "moe": "none",
}
_LETTERS = {"*": "full", "M": "linear", "-": "none", "E": "none"}
# Classes from before grouped-query attention, whose configurations do not name KV heads.
_UNGROUPED = frozenset({
    "RefinedWeb", "RefinedWebModel", "aquila", "baichuan", "biogpt", "bloom", "chatglm",
    "codegen", "ctrl", "exaone", "falcon", "fuyu", "gpt2", "gpt_bigcode", "gpt_neox",
    "gpt_neox_japanese", "gptj", "hrm_text", "internlm", "jais", "llama", "mpt", "openai-gpt",
    "opt", "orion", "persimmon", "qwen", "stablelm_epoch", "xverse",
})  # fmt: skip
# Models of only words or pictures, which keep nothing for a next token.
_ENCODERS = re.compile(r"(?!.*decoder).*(bert|roberta|mpnet|electra|nomic)")
_NO_TEXT = ("patch_size", "image_size", "num_mel_bins", "num_channels", "codebook_size")


def experts(config: Mapping[str, Any]) -> Literal["none", "plain", "quantised"]:
    """Return a configuration's answer about a mixture of experts.

    "none", or whether the weights are stored "quantised" or "plain". Mistral's params.json has a
    mapping `moe`.
    """
    parts = [config, *(config.get(key) for key in ("text_config", "llm_config"))]
    mappings = [part for part in parts if isinstance(part, Mapping)]
    if not any(part.get(key) for part in mappings for key in (*EXPERTS, "moe")):
        return "none"
    quantisation_keys = ("quantization_config", "quantization", "compression_config")
    return (
        "quantised"
        if any(part.get(key) for part in mappings for key in quantisation_keys)
        else "plain"
    )


def from_config(config: Mapping[str, Any], source: str) -> Architecture:
    """Return the architecture that a ``config.json`` or Mistral's ``params.json`` describes.

    ArchitectureUnknown where a size that decides the cache is missing, or an unknown key may change
    the cache. An encoder has no layers that keep anything.
    """
    try:
        return _read(config, source)
    # A list that is too short, or words in place of sizes, come from no engine.
    except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as fault:
        raise ArchitectureUnknown(_SENSELESS, where=source, found=str(fault)) from fault


def _read(config: Mapping[str, Any], source: str) -> Architecture:
    text = _language_model(config, source)
    reader = _Config(text, source)
    group_counts: Counter[Layers] = Counter()
    if not reader.encodes():
        for number, word in enumerate(reader.words()):
            group_counts.update(reader.at(number).layers_of(word, number))
        reader.refuse_others()
    groups = tuple(replace(group, count=count) for group, count in group_counts.items())
    if not all(is_sound(group) for group in groups) or not (groups or reader.encodes()):
        raise ArchitectureUnknown(_SENSELESS, where=source)
    return Architecture(
        _as_wide(groups) if str(text.get("model_type")).startswith("dots3") else groups,
        reader.stated_size(
            "max_position_embeddings", "model_max_length", "n_positions", "seq_length"
        ),
        reader.stated_size("num_attention_heads", "n_head"),
        dense=not any(text.get(key) for key in (*EXPERTS, "moe")),
        vocabulary=reader.stated_size("vocab_size"),
        width=reader.stated_size("hidden_size", "n_embd"),
        step=step_of(config, text),
    )


def _language_model(config: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """Return the part that describes the language model, in the words of a config.json."""
    for key in _PARTS:
        if config.get(key):
            if not isinstance(config[key], Mapping):
                raise ArchitectureUnknown(f"{key} is not a mapping", where=source)
            return _language_model(config[key], source)
    own_values = {_MISTRAL.get(key, key): value for key, value in config.items()}
    return {**_USUAL.get(str(config.get("model_type")), {}), **own_values}


def _as_wide(groups: tuple[Layers, ...]) -> tuple[Layers, ...]:
    """Return latents all as wide as the widest: dots3 pads a cache's rows to those of another."""
    widest = max(group.latent for group in groups)
    return tuple(replace(group, latent=widest) for group in groups)


class _Config:
    """Reader of sizes in one text configuration; a missing size is `ArchitectureUnknown`."""

    def __init__(
        self, config: Mapping[str, Any], source: str, read: set[str] | None = None
    ) -> None:
        self.config, self.source = config, source
        self.read = set() if read is None else read

    def get(self, key: str) -> Any:
        self.read.add(key)
        return self.config.get(key)

    def stated_size(self, *keys: str) -> int | None:
        """Return the first of these values that is a size; None where none is."""
        values = [self.get(key) for key in keys]
        for key, text in zip(keys, values, strict=True):
            if isinstance(text, str) and text.isdecimal():
                # Left out, the text would count as the size of a model without this key.
                raise self.unknown(f"{key} is text, not a number", text)
        sizes = (
            value for value in values if isinstance(value, int) and not isinstance(value, bool)
        )
        return next((value for value in sizes if value > 0), None)

    def size(self, *keys: str) -> int:
        if (value := self.stated_size(*keys)) is not None:
            return value
        raise self.unknown(f"the configuration gives no {' or '.join(keys)}")

    def unknown(self, summary: str, found_text: str = "") -> ArchitectureUnknown:
        return ArchitectureUnknown(
            summary,
            where=self.source,
            found=found_text,
            remedy="Put the shapes into the catalogue, with their source.",
        )

    def at(self, number: int) -> _Config:
        """Return the reader for one layer, with the values that are stated for that layer."""
        own = (self.get("per_layer_config") or {}).get(f"{number:02d}") or {}
        lists = {
            key: value[number]
            for key in ("num_key_value_heads", "num_attention_heads")
            if isinstance(value := self.get(key), list) and number < len(value)
        }
        return (
            _Config({**self.config, **lists, **own}, self.source, self.read)
            if own or lists
            else self
        )

    def encodes(self) -> bool:
        """Tell whether the model keeps nothing for a next token; unknown for no language model."""
        kind = str(self.get("model_type"))
        for key in _NO_TEXT:
            if self.config.get(key) and not self.config.get("num_key_value_heads"):
                raise self.unknown(f"no language model, by its {key}")
        if not (
            self.config.keys() & {"vocab_size", "num_key_value_heads", "kv_lora_rank"}
            or kind in _USUAL
        ):
            raise self.unknown("no language model: the configuration gives no vocab_size")
        if self.get("is_encoder_decoder"):
            raise self.unknown("an encoder beside the decoder (is_encoder_decoder)")
        reads_alone = "type_vocab_size" in self.config or _ENCODERS.match(kind)
        return bool(reads_alone) and not self.get("is_decoder")

    def refuse_others(self) -> None:
        """Raise ArchitectureUnknown for an unread key that may change the cache."""
        unread_keys = sorted(
            key
            for key, value in self.config.items()
            if value and value != "auto" and key not in self.read and may_change_cache(key)
        )
        if unread_keys:
            raise self.unknown(
                f"{', '.join(unread_keys)} may change the KV cache, and it is not known how"
            )

    def words(self) -> Sequence[str]:
        """Return one word per layer."""
        pattern = self.get("hybrid_override_pattern")
        if isinstance(pattern, str) and pattern:
            return [self.word(letter, _LETTERS) for letter in pattern]
        types = self.get("layer_types") or self.get("layers_block_type")
        if types == "parallel":  # Falcon-H1: a state and attention in every layer
            return ["hybrid"] * self.layer_count("num_hidden_layers")
        if isinstance(types, Sequence) and not isinstance(types, str):
            self.read |= PLACING
            if str(self.config.get("model_type")).startswith("minimax_m3"):
                self.read.add("index_head_dim")  # read only for those layers that choose
            type_count = len(types)
            count = self.stated_size("num_hidden_layers", "n_layer") or type_count
            if type_count < count:
                raise self.unknown(f"layer_types names {type_count} of {count} layers")
            return [self.word(word, _WORDS) for word in types[:count]]
        if str(self.config.get("model_type")).startswith("longcat"):  # attention twice in each
            return ["full"] * 2 * self.layer_count("num_layers")
        count = self.layer_count("num_hidden_layers", "n_layer")
        if words := list(self.place_layers(count)):
            self.read |= PLACING
            return words
        return list(self.place_windows(count)) or ["full"] * count

    def layer_count(self, *keys: str) -> int:
        """Return the number of layers; unknown for a number that no model has."""
        count = self.size(*keys)
        if count > _MOST_LAYERS:
            raise self.unknown(_SENSELESS, f"{count} layers")
        return count

    def word(self, layer_type: Any, known_words: Mapping[str, str]) -> str:
        if not isinstance(layer_type, str) or layer_type not in known_words:
            raise self.unknown("unknown layer type", str(layer_type))
        return known_words[layer_type]

    def place_layers(self, count: int) -> Iterator[str]:
        """Yield one word per layer by a rule other than a list of words; nothing without one."""
        numbers = range(count)
        if ratios := self.get("compress_ratios"):
            yield from (f"compressed {ratio}" for ratio in ratios[:count])
        elif isinstance(sparse := self.get("sparse_attention_config"), Mapping):
            often = sparse.get("sparse_attention_freq") or [1] * count
            yield from ("selected" if is_selected else "full" for is_selected in often)
        elif isinstance(linear := self.get("linear_attn_config"), Mapping):
            # Kimi counts layers from 1.
            full = {is_selected - 1 for is_selected in linear.get("full_attn_layers") or ()}
            states = {is_selected - 1 for is_selected in linear.get("kda_layers") or ()}
            if full & states or full | states != set(numbers):
                raise self.unknown("linear_attn_config does not name each layer once")
            yield from ("full" if i in full else "linear" for i in numbers)
        elif isinstance(kinds := self.get("attn_type_list"), list):
            yield from ("full" if kind else "linear" for kind in kinds)
        elif isinstance(kinds := self.get("hybrid_layer_pattern"), list):
            yield from ("sliding" if kind else "full" for kind in kinds)
        elif self.get("local_layer_ids") is not None:
            near = set(self.get("local_layer_ids"))
            yield from ("hybrid sliding" if i in near else "hybrid" for i in numbers)
        elif isinstance(seeing := self.get("full_attn_idxs"), list):
            yield from ("full" if i in seeing else "conv" for i in numbers)
        elif "attn_layer_indices" in self.config:
            seeing = self.get("attn_layer_indices") or []
            yield from ("full" if i in seeing else "linear" for i in numbers)
        elif self.get("mamba_d_state") and (period := self.stated_size("attn_layer_period")):
            start = self.stated_size("attn_layer_offset") or 0
            yield from ("full" if i % period == start else "linear" for i in numbers)
        elif size := self.stated_size("layer_group_size"):
            last = count // size * size
            yield from ("full" if (i + 1) % size == 0 or i >= last else "linear" for i in numbers)
        elif self.stated_size("linear_num_value_heads") and (
            interval := self.stated_size("full_attention_interval")
        ):
            yield from ("linear" if (i + 1) % interval else "full" for i in numbers)
        elif self.get("mamba_d_state") or self.get("state_size"):
            if self.get("num_key_value_heads"):
                raise self.unknown("the configuration does not say which layers are attention")
            yield from ["linear"] * count

    def place_windows(self, count: int) -> Iterator[str]:
        """Yield one word per layer of a model with K and V in each; nothing without a window."""
        numbers = range(count)
        chunk = self.stated_size("attention_chunk_size")
        rope_flags = self.get("no_rope_layers") or [
            (i + 1) % (self.stated_size("no_rope_layer_interval") or 4) for i in numbers
        ]
        usual = self.get("sliding_window_pattern")
        pattern = self.stated_size("layer_switch") or usual
        window = self.get("sliding_window")
        if chunk:
            yield from ("chunked" if has_rope else "full" for has_rope in rope_flags[:count])
        elif self.config.get("use_sliding_window") is False or not window:
            yield from self.place_indexed(count)
        elif isinstance(window, list):  # Mistral's: one for each of some layers, repeated
            yield from ("sliding" if window[i % len(window)] else "full" for i in numbers)
        elif isinstance(pattern, str) and set(pattern) <= {"L", "G"}:
            yield from ("full" if pattern[i % len(pattern)] == "G" else "sliding" for i in numbers)
        elif isinstance(pattern, int) and pattern > 0:
            yield from ("sliding" if (i + 1) % pattern else "full" for i in numbers)
        elif self.config.get("use_sliding_window"):
            first = self.stated_size("max_window_layers") or 0
            yield from ("full" if i < first else "sliding" for i in numbers)
        elif str(self.config.get("model_type")) in (*_WINDOWED, "None"):
            yield from ["sliding"] * count
        else:
            raise self.unknown("sliding_window is stated, and not which layers have it")

    def place_indexed(self, count: int) -> Iterator[str]:
        if self.get("kv_lora_rank") and self.stated_size("index_topk"):
            yield from ["indexed"] * count

    def layers_of(self, word: str, number: int) -> list[Layers]:
        """Return what one layer keeps, by its word; some layers keep two things."""
        if word == "none" or (word != "linear" and self.borrows(number)):
            return []
        if word == "linear":
            return [self.state(), *self.words_table(number)]
        if word == "conv":
            kernel = self.size("conv_L_cache")
            return [
                Layers("recurrent", 1, conv=self.size("conv_dim", "hidden_size"), kernel=kernel)
            ]
        if word.startswith("compressed"):
            return self.compressed_layers(word)
        if word.startswith("hybrid"):
            return self.hybrid_layers(word)
        return [self.attention(word, number), *self.words_table(number)]

    def borrows(self, number: int) -> bool:
        """Tell whether a layer keeps nothing, because it reads the cache of another layer."""
        if not self.config.get("use_cla"):
            self.read.add("cla_share_factor")
        sources, shared_count = (
            self.get("kv_source_layers"),
            self.stated_size("num_kv_shared_layers") or 0,
        )
        if isinstance(sources, list):
            return bool(sources[number] != number)
        return (
            number >= self.size("num_hidden_layers", "n_layer") - shared_count
            if shared_count
            else False
        )

    def attention(self, word: str, number: int = 0) -> Layers:
        """Return K and V, or a latent, with the index of sparse attention."""
        window = self.window(word) if word in ("sliding", "chunked") else 0
        index, pool = self.index(word, number)
        if self.get("kv_lora_rank"):
            return self.latent(window, index, pool)
        heads, width, value = self.heads(near=word == "sliding")
        kind: Literal["full", "sliding"] = "sliding" if window else "full"
        return Layers(
            kind,
            1,
            kv_heads=heads,
            head_dim=width,
            value_dim=0 if value == width else value,
            window=window,
            index=index,
            pool=pool,
        )

    def window(self, word: str) -> int:
        """Return the tokens that a layer sees at most."""
        if word == "chunked":
            return self.size("attention_chunk_size")
        if isinstance(limits := self.get("sliding_window"), list):
            widest: int = max(filter(None, limits))
            return widest
        return self.size("sliding_window", "sliding_window_size", "local_attention")

    def latent(self, window: int, index: float, pool: int) -> Layers:
        if self.config.get("model_type") == "minicpm3":  # vLLM keeps its K and V
            self.read |= {"head_dim", "v_head_dim", "num_key_value_heads"}
            width = self.size("qk_nope_head_dim") + self.size("qk_rope_head_dim")
            return Layers("full", 1, kv_heads=self.size("num_attention_heads"), head_dim=width)
        self.read |= {"head_dim", "v_head_dim", "num_key_value_heads", "qk_nope_head_dim"}
        if (rope_width := self.get("qk_rope_head_dim")) is None:
            raise self.unknown("the configuration gives no qk_rope_head_dim")
        latent = self.size("kv_lora_rank") + rope_width
        return Layers(
            "sliding" if window else "mla",
            1,
            window=window,
            latent=latent,
            index=index,
            pool=pool,
            block=128 if pool > 1 else 0,  # Glm5NextTailCache
        )

    def index(self, word: str, number: int) -> tuple[float, int]:
        """Return the bytes per token of sparse attention's keys, and the tokens of each key."""
        if word == "selected":  # MiniMax-M3 keeps them in 16 bits
            own = self.get("sparse_attention_config") or {}
            return 2.0 * (own.get("sparse_index_dim") or self.size("index_head_dim")), 1
        ratio = self.stated_size("indexer_compress_ratio")
        if word in ("full", "indexed") and self.stated_size("indexer_n_heads") and ratio:
            return 2 * self.size("indexer_head_dim") * self.size("indexer_kv_heads") / ratio, ratio
        # The default configuration of Qwen 4 names such layers and gives them no index.
        if word != "indexed" or not self.get("kv_lora_rank"):
            return 0, 1
        kinds = self.get("indexer_types")
        if kinds is None and (
            (self.stated_size("index_topk_freq") or 1) > 1 or self.get("index_topk_pattern")
        ):
            raise self.unknown("index_topk_freq may change the KV cache, and it is not known how")
        if kinds is not None and kinds[number] != "full":
            return 0, 1
        width, pool = self.size("index_head_dim"), self.stated_size("index_kpool") or 1
        # One FP8 key per token, plus one float32 scale for each 128 elements.
        return (width + 4 * math.ceil(width / 128)) / pool, pool

    def heads(self, *, near: bool) -> tuple[int, int, int]:
        """Return the KV heads, and the elements of K and V in each; `near`: of a sliding window."""
        far = ("num_global_key_value_heads", "global_head_dim", "v_head_dim")
        own = ("swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim")
        for key in (*far, *own, "num_kv_heads", "new_decoder_architecture", "multi_query"):
            self.get(key)
        keys, width, value = own if near else far
        heads = self.stated_size(keys, "num_key_value_heads", "n_head_kv", "multi_query_group_num")
        if self.config.get("new_decoder_architecture"):
            heads = self.size("num_kv_heads")
        elif heads is None and self.config.get("multi_query"):
            heads = 1
        if heads is None:
            kind = str(self.config.get("model_type"))
            # A GGUF file names no class; llama.cpp takes as many KV heads as heads.
            is_grouped = "model_type" in self.config and kind not in _UNGROUPED
            if is_grouped and "num_key_value_heads" not in self.config:
                raise self.unknown("the configuration gives no num_key_value_heads")
            heads = self.size("num_attention_heads", "n_head")
        wide = self.stated_size(
            width, "head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels"
        )
        if wide is None:
            wide = self.size("hidden_size", "n_embd") // self.size("num_attention_heads", "n_head")
        return heads, wide, self.stated_size(value, "v_head_dim") or wide

    def state(self) -> Layers:
        """Return what a layer keeps of a whole sequence."""
        if self.stated_size("linear_num_value_heads"):
            return self._delta_net()
        if (own := self.get("linear_attn_config")) or self.stated_size("linear_num_heads"):
            return self._kimi(own or {})
        if self.stated_size("mamba_d_state", "ssm_state_size", "state_size"):
            return self._mamba()
        if self.stated_size("block_size") or self.config.get("attn_type_list"):  # MiniMax-01's
            heads = self.size("num_attention_heads")
            width = self.stated_size("head_dim") or self.size("hidden_size") // heads
            return Layers("recurrent", 1, state=heads * width**2, state_bytes=2)
        raise self.unknown("the configuration gives no linear_num_value_heads")

    def _delta_net(self) -> Layers:
        heads, width = self.size("linear_num_value_heads"), self.size("linear_value_head_dim")
        key, keys = self.size("linear_key_head_dim"), self.size("linear_num_key_heads")
        return Layers(
            "recurrent",
            1,
            state=heads * width * key,
            state_bytes=self.state_bytes(2),
            conv=2 * keys * key + heads * width,
            kernel=self.stated_size("linear_conv_kernel_dim") or 4,
        )

    def _kimi(self, own: Mapping[str, Any]) -> Layers:
        part = _Config(own, self.source)
        heads = part.stated_size("num_heads") or self.size("linear_num_heads")
        width = part.stated_size("head_dim") or self.size("linear_head_dim")
        kernel = part.stated_size("short_conv_kernel_size")
        return Layers(
            "recurrent",
            1,
            state=heads * width**2,
            conv=3 * heads * width,
            kernel=kernel
            or self.stated_size("linear_conv_kernel_dim", "short_conv_kernel_size")
            or 4,
        )

    def _mamba(self) -> Layers:
        self.read |= {"mamba_expand", "expand", "mamba_d_ssm", "attn_layer_period"}
        state = self.size("mamba_d_state", "ssm_state_size", "state_size")
        kernel = self.size("mamba_d_conv", "conv_kernel")
        heads = self.stated_size("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
        width = self.stated_size("mamba_head_dim", "mamba_d_head", "mamba_headdim")
        if heads and width is None and self.config.get("model_type") == "mamba2":
            width = self.stated_size("head_dim")
        wide = self.stated_size("mamba_expand", "expand") or 2
        if heads and (width or self.get("mamba_d_head") == "auto"):  # Mamba-2
            inner = self.stated_size("mamba_d_ssm") or heads * (
                width or wide * self.size("hidden_size") // heads
            )
            groups = self.size("n_groups", "mamba_n_groups", "mamba_ngroups")
            usual = 4 if str(self.config.get("model_type")).startswith("nemotron") else 2
            usual = 4 if self.config.get("hybrid_override_pattern") else usual
            return Layers(
                "recurrent",
                1,
                state=inner * state,
                state_bytes=self.state_bytes(usual),
                conv=inner + 2 * groups * state,
                kernel=kernel,
            )
        inner = wide * self.size("hidden_size")
        if self.config.get("model_type") in ("mamba", "falcon_mamba"):
            # Only for Mamba-1 does vLLM take this as the width: Falcon-Mamba's `expand` is 16, and
            # means nothing (models/mamba.py). In a hybrid it is the width of the dense layers.
            inner = self.stated_size("intermediate_size") or inner
        return Layers(
            "recurrent",
            1,
            state=inner * state,
            state_bytes=self.state_bytes(2),
            conv=inner,
            kernel=kernel,
        )

    def state_bytes(self, usual: int) -> int:
        """Return the bytes of an element of a state: the configuration's, else those of vLLM."""
        dtype = self.get("mamba_ssm_cache_dtype") or self.get("mamba_ssm_dtype")
        return int(KV_ELEMENT_BYTES.get(str(dtype), usual)) if dtype else usual

    def hybrid_layers(self, word: str) -> list[Layers]:
        """Return a layer with attention and a state beside it."""
        if self.stated_size("mamba_d_state"):
            return [self._mamba(), self.attention("full")]
        kernel = self.stated_size("sconv_kernel_size", "conv_kernel_size")
        if not kernel or not self.stated_size("swa_head_dim"):
            raise self.unknown("unknown layer type", "hybrid")
        self.read |= {"number_of_conv_states", "sliding_window_size"}
        attention_layers = self.attention("sliding" if word.endswith("sliding") else "full")
        # Inkling has four streams of a short convolution in one row per head, padded to a power of
        # 2.
        row = (
            2 * attention_layers.head_dim
            + 2 * self.size("hidden_size") // attention_layers.kv_heads
        )
        row = 1 << (row - 1).bit_length()
        bytes_ = 2.0 * attention_layers.kv_heads * row
        return [attention_layers, Layers("sliding", 1, window=kernel, index=bytes_, block=kernel)]

    def compressed_layers(self, word: str) -> list[Layers]:
        """Return DeepSeek V4's layers: a window, and one entry for several tokens with its state.

        vLLM keeps 584 bytes an entry, in pages of a multiple of 576 (`fp8_ds_mla`).
        """
        if (self.size("head_dim"), self.size("qk_rope_head_dim")) != (512, 64):
            raise self.unknown("compressed attention of other sizes than DeepSeek V4's")
        self.read |= {"compress_rates", "num_key_value_heads", "v_head_dim", "o_lora_rank"}
        window = self.size("sliding_window")
        near = Layers("sliding", 1, window=window, index=padded_bytes(64, 584), block=64)
        ratio = int(word.rpartition(" ")[2])
        if ratio <= 1:
            return [near]
        index = self.size("index_head_dim")
        if ratio == 4:
            entry = padded_bytes(64, 584, 256) + padded_bytes(64, index + index // 128 * 4, 256)
            state = padded_bytes(4, 4 * 4 * 512) + padded_bytes(4, 4 * 4 * index)
            state_layers = Layers("sliding", 1, window=8, index=state, block=4)
        elif ratio == 128:
            entry = padded_bytes(2, 584, 256)
            state_layers = Layers(
                "sliding", 1, window=128, index=padded_bytes(8, 2 * 4 * 512), block=8
            )
        else:
            raise self.unknown("unknown layer type", f"compress_ratios {ratio}")
        return [near, Layers("mla", 1, index=entry, block=256), state_layers]

    def words_table(self, number: int) -> list[Layers]:
        """Return the convolution beside a table of word groups: Qwen 4, with layers from 1."""
        if number + 1 not in (self.get("ple_layer_ids") or ()):
            return []
        width = self.size("hidden_size") * self.size("hc_count")
        reach = (self.size("ple_conv_kernel_size") - 1) * self.size("ngram_size")
        return [Layers("recurrent", 1, conv=width, kernel=reach + 1)]


def padded_bytes(entries: int, size: int, tokens: int = 0) -> float:
    """Return the bytes per token of a page with some entries, padded to a multiple of 576 bytes."""
    return math.ceil(entries * size / 576) * 576 / (tokens or entries)
