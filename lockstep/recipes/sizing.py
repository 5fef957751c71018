"""A recipe's memory, context and hosts, read back from its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from lockstep.onhost.core.kind import Kind
from lockstep.recipes import flags
from lockstep.recipes.command import AsWritten, environment, serve_command
from lockstep.recipes.placeholders import engine_of, kind_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import size


@dataclass(frozen=True, slots=True)
class Serving:
    """The settings that decide memory; None where the recipe leaves one to the engine.

    Attributes:
        utilization: Share of the machine's memory for the engine (0 to 1).
        dtype: Type that the weights are loaded in ("auto": 16 bits where they are stored in 32).
        context: Longest sequence, tokens.
        sequences: Most sequences at a time.
        kv_dtype: Type of the KV cache ("auto": the model's own, 2 bytes), "K/V" where they differ.
        kv_gib: KV cache given as a size (GiB), which overrides the share.
        state_dtype: Type of recurrent states ("auto": the model's own).
        prefix_caching: Whether the states of earlier prompts are kept.
        batched_tokens: Most tokens in one step of the engine, or None.
        tensor_parallel: Hosts that split each layer.
        pipeline_parallel: Hosts that split the layers among them.
        data_parallel: Copies of the model, each on hosts of its own.
        speculative: Speculative method in lower case ("dflash", "mtp", "eagle"), or None.
        draft_tokens: Tokens drafted per step, or None.
        eager: Whether the engine is told to capture no CUDA graphs.
        kind: What the model is asked for.
        host_gib: What the engine is asked to keep in the host's memory, GiB.
        runner: Model runner of vLLM that a variable asks for, 1 or 2, or None.
        release: Version of the engine, or None where it is not known.
        host: Address the API listens on, or None.
        port: Port of the API, or None.
    """

    utilization: float | None = None
    dtype: str = "auto"
    context: int | None = None
    sequences: int | None = None
    kv_dtype: str = "auto"
    kv_gib: float | None = None
    state_dtype: str = "auto"
    prefix_caching: bool = True
    batched_tokens: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    speculative: str | None = None
    draft_tokens: int | None = None
    eager: bool = False
    kind: Kind = "chat"
    host_gib: float = 0.0
    runner: int | None = None
    release: str | None = None
    host: str | None = None
    port: int | None = None

    @property
    def hosts(self) -> int:
        """Sparks needed: one GPU each."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def shares(self) -> int:
        """Sparks that split one copy of the weights."""
        return self.tensor_parallel * self.pipeline_parallel


def serving(
    recipe: Recipe, overrides: Mapping[str, object] | None = None, version: str | None = None
) -> Serving:
    """The settings of a recipe with what the inventory sets, as its command line says them."""
    return read_back(recipe, serve_command(recipe, overrides=overrides), version)


def read_back(recipe: Recipe, argv: Sequence[str], version: str | None = None) -> Serving:
    """The settings that a command line carries, for an engine of this version if it is known."""
    said = _Said(recipe, argv)
    speculative, draft_tokens = said.draft()
    kv_bytes = said.number("kv_cache_memory_bytes")
    return Serving(
        utilization=said.share("gpu_memory_utilization"),
        dtype=said.value("dtype") or "auto",
        context=said.whole("max_model_len"),
        sequences=said.whole("max_num_seqs"),
        kv_dtype=said.kv_dtype(),
        kv_gib=kv_bytes / 2**30 if kv_bytes else None,
        state_dtype=said.value("mamba_ssm_cache_dtype") or "auto",
        prefix_caching=said.keeps_prompts(version),
        batched_tokens=said.whole("max_num_batched_tokens"),
        tensor_parallel=said.whole("tensor_parallel") or 1,
        pipeline_parallel=said.whole("pipeline_parallel") or 1,
        data_parallel=said.copies(),
        speculative=speculative,
        draft_tokens=draft_tokens,
        eager=said.has("enforce_eager"),
        kind=kind_of(recipe, argv),
        host_gib=said.host_memory(),
        runner=said.runner(),
        release=_release(version),
        host=said.value("host"),
        port=said.whole("port"),
    )


#: Recipe keys that are read as numbers, and those that are read as text.
_NUMBERS = (
    *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    *("kv_cache_memory_bytes", "tensor_parallel", "pipeline_parallel", "data_parallel", "port"),
)
_TEXTS = ("kv_cache_dtype", "mamba_ssm_cache_dtype", "quantization", "moe_backend", "api_key")


def options_read(recipe: Recipe, argv: Sequence[str]) -> dict[str, object]:
    """Option → what is read of it in a command line, None where it is not there.

    The engine's own parser is asked for the same, and a recipe of which both do not read the same
    is refused (`Engine.fault`).
    """
    said = _Said(recipe, argv)
    found: dict[str, object] = {key: said.number(key) for key in _NUMBERS}
    found |= {key: said.value(key) for key in _TEXTS}
    if draft := said.engine.draft_config:
        text = flags.value_of(argv, draft)
        found["speculative_config"] = None if text is None else flags.json_value(draft[0], text)
    return {
        said.engine.spellings(key)[0].lstrip("-").replace("-", "_"): value
        for key, value in found.items()
        if said.engine.spellings(key)
    }


class _Said:
    """What a command line says, by the recipe's keys."""

    def __init__(self, recipe: Recipe, argv: Sequence[str]) -> None:
        self.recipe, self.argv, self.engine = recipe, argv, engine_of(recipe)

    def value(self, key: str) -> str | None:
        return flags.value_of(self.argv, self.engine.spellings(key))

    def has(self, key: str) -> bool:
        return flags.find(self.argv, self.engine.spellings(key)) is not None

    def number(self, key: str) -> float | None:
        return _number(self.recipe, key, self.value(key))

    def whole(self, key: str) -> int | None:
        return _whole(self.number(key))

    def share(self, key: str) -> float | None:
        share = self.number(key)
        if share is not None and not 0 < share <= 1:
            raise self.recipe.fault(
                f"{key} must be a share of the memory",
                found=str(share),
                allowed="more than 0, at most 1",
            )
        return share

    def keeps_prompts(self, version: str | None) -> bool:
        """Said by the recipe, else as an engine of this version does with a hybrid model."""
        if self.has("no_enable_prefix_caching") or self.has("enable_prefix_caching"):
            return not self.has("no_enable_prefix_caching")
        release = _release(version)
        if release is None or self.engine.keeps_states is None:
            return True
        return Version(release) >= Version(self.engine.keeps_states)

    def runner(self) -> int | None:
        """The model runner of vLLM that a variable of the recipe asks for."""
        asked = environment(self.recipe, control=AsWritten()).get("VLLM_USE_V2_MODEL_RUNNER")
        return {"0": 1, "1": 2}.get(str(asked))

    def kv_dtype(self) -> str:
        """One type, or those of K and V where the engine has a flag for each."""
        keys = ("kv_cache_dtype", "kv_cache_dtype_v")
        kinds = [
            self.value(key) or "auto" for key in keys if key == keys[0] or key in self.engine.flags
        ]
        return "/".join(dict.fromkeys(kinds))

    def copies(self) -> int:
        """Attention by data parallelism may split the hosts of one copy, and adds none then."""
        degree = self.whole("data_parallel") or 1
        return 1 if flags.find(self.argv, self.engine.shares_copies) else degree

    def host_memory(self) -> float:
        """What its host memory is counted with, by flags and variables."""
        return sum(kind.gib(self.argv, self.recipe.env) for kind in self.engine.host_memory)

    def draft(self) -> tuple[str | None, int | None]:
        """The speculative method, and how many tokens it drafts."""
        if not self.engine.draft_config:
            method = self.value("speculative_algorithm")
            count = self.whole("speculative_num_draft_tokens")
            if count is None and (block := self.whole("speculative_dspark_block_size")):
                # SGLang counts the token of the large model too (arg_groups/speculative_hook.py of
                # 0.5.23).
                count = block + 1
            return method.lower() if method else None, count
        text = flags.value_of(self.argv, self.engine.draft_config)
        if text is None:
            return None, None
        config = flags.json_value(self.engine.draft_config[0], text)
        key = "num_speculative_tokens"
        count = _whole(_number(self.recipe, key, config.get(key)))
        return str(config.get("method") or "draft_model").lower(), count


def _release(version: str | None) -> str | None:
    """The release of a version, without what a build adds; None where it is none."""
    try:
        return Version(version or "").base_version
    except InvalidVersion:
        return None


def _number(recipe: Recipe, key: str, text: object) -> float | None:
    # The engine chooses what is "auto", as if nothing were said; of a length -1 is the same.
    if text is None or str(text).lower() in ("", "auto", "-1"):
        return None
    try:
        number = size(str(text))
    except ValueError as fault:
        raise recipe.fault(f"{key} must be a number", found=repr(text)) from fault
    if not 0 <= number < 1e15:
        raise recipe.fault(f"{key} is out of range", found=str(text))
    return number


def _whole(number: float | None) -> int | None:
    return int(number) if number else None
