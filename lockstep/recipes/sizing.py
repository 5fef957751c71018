"""A recipe's memory, context and hosts, read back from its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.recipes import flags
from lockstep.recipes.command import AsWritten, environment, serve_command
from lockstep.recipes.placeholders import engine_of, kind_of, served_name
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import size


@dataclass(frozen=True, slots=True)
class Serving:
    """The settings that decide memory; None where the recipe leaves the setting to the engine.

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
        keeps_whole_context: Whether layers with a sliding window keep all tokens (llama.cpp).
        kind: Kind of questions for the model.
        host_gib: Memory of the host that the engine is asked to use, GiB.
        runner: Model runner of vLLM that a variable asks for, 1 or 2, or None.
        release: Version of the engine, or None where it is not known.
        host: Address the API listens on, or None.
        port: Port of the API, or None.
        served_name: The model's name in the API.
        tools: Whether it has a parser of tool calls: a flag of vLLM and SGLang; llama.cpp has none.
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
    keeps_whole_context: bool = False
    kind: Kind = "chat"
    host_gib: float = 0.0
    runner: int | None = None
    release: str | None = None
    host: str | None = None
    port: int | None = None
    served_name: str = ""
    tools: bool = False

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
    """Return the settings of a recipe with the inventory's overrides, by its command line."""
    return read_back(recipe, serve_command(recipe, overrides=overrides), version)


def read_back(recipe: Recipe, argv: Sequence[str], version: str | None = None) -> Serving:
    """Return the settings in a command line, for an engine of this version if that is known."""
    command_values = _CommandValues(recipe, argv)
    speculative, draft_tokens = command_values.draft()
    kv_bytes = command_values.number("kv_cache_memory_bytes")
    return Serving(
        utilization=command_values.share("gpu_memory_utilization"),
        dtype=command_values.value("dtype") or "auto",
        context=command_values.whole("max_model_len"),
        sequences=command_values.count("max_num_seqs"),
        kv_dtype=command_values.kv_dtype(),
        kv_gib=kv_bytes / 2**30 if kv_bytes else None,
        state_dtype=command_values.value("mamba_ssm_cache_dtype") or "auto",
        prefix_caching=command_values.keeps_prompts(version),
        batched_tokens=command_values.count("max_num_batched_tokens"),
        tensor_parallel=command_values.count("tensor_parallel") or 1,
        pipeline_parallel=command_values.count("pipeline_parallel") or 1,
        data_parallel=command_values.copies(),
        speculative=speculative,
        draft_tokens=draft_tokens,
        eager=command_values.has("enforce_eager"),
        keeps_whole_context=command_values.has("swa_full"),
        kind=kind_of(recipe, argv),
        host_gib=command_values.host_memory(),
        runner=command_values.runner(),
        release=_release(version),
        host=command_values.value("host"),
        port=command_values.count("port", most=65535),
        served_name=served_name(recipe, argv),
        tools=flags.flag_span(argv, ("--tool-call-parser",)) is not None,
    )


#: Recipe keys that are read as numbers, and those that are read as text.
_NUMBERS = (
    *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    *("kv_cache_memory_bytes", "tensor_parallel", "pipeline_parallel", "data_parallel", "port"),
)
_TEXTS = ("kv_cache_dtype", "mamba_ssm_cache_dtype", "quantization", "moe_backend", "api_key")


def options_read(recipe: Recipe, argv: Sequence[str]) -> dict[str, object]:
    """Return option → its value in a command line, None where it is absent.

    The engine's own parser is asked for the same. A recipe that both read differently is refused
    (`Engine.fault`).
    """
    command_values = _CommandValues(recipe, argv)
    options_found: dict[str, object] = {key: command_values.number(key) for key in _NUMBERS}
    options_found |= {key: command_values.value(key) for key in _TEXTS}
    if draft := command_values.engine.draft_config:
        text = flags.value_of(argv, draft)
        options_found["speculative_config"] = (
            None if text is None else flags.json_value(draft[0], text)
        )
    return {
        command_values.engine.spellings(key)[0].lstrip("-").replace("-", "_"): value
        for key, value in options_found.items()
        if command_values.engine.spellings(key)
    }


class _CommandValues:
    """The values in a command line, by the recipe's keys."""

    def __init__(self, recipe: Recipe, argv: Sequence[str]) -> None:
        self.recipe, self.argv, self.engine = recipe, argv, engine_of(recipe)

    def value(self, key: str) -> str | None:
        return flags.value_of(self.argv, self.engine.spellings(key))

    def has(self, key: str) -> bool:
        return flags.flag_span(self.argv, self.engine.spellings(key)) is not None

    def number(self, key: str) -> float | None:
        return _number(self.recipe, key, self.value(key))

    def whole(self, key: str) -> int | None:
        return _whole(self.number(key))

    def count(self, key: str, *, most: int | None = None) -> int | None:
        number = self.number(key)
        if number is not None and (number != int(number) or not 1 <= number <= (most or number)):
            raise self.recipe.fault(
                f"{key} must be a whole number",
                found=self.value(key) or "",
                allowed=f"1 to {most}" if most else "1 or more",
            )
        return _whole(number)

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
        """Tell whether prompts are kept, by the recipe or a version's default for hybrid models."""
        if self.has("no_enable_prefix_caching") or self.has("enable_prefix_caching"):
            return not self.has("no_enable_prefix_caching")
        release = _release(version)
        if release is None or self.engine.keeps_states is None:
            return True
        return Version(release) >= Version(self.engine.keeps_states)

    def runner(self) -> int | None:
        """Return the model runner of vLLM that a variable of the recipe asks for."""
        variable = environment(self.recipe, control=AsWritten()).get("VLLM_USE_V2_MODEL_RUNNER")
        return {"0": 1, "1": 2}.get(str(variable))

    def kv_dtype(self) -> str:
        """Return one type, or those of K and V where the engine has a flag for each."""
        keys = ("kv_cache_dtype", "kv_cache_dtype_v")
        kinds = [
            self.value(key) or "auto" for key in keys if key == keys[0] or key in self.engine.flags
        ]
        return "/".join(dict.fromkeys(kinds))

    def copies(self) -> int:
        """Return the copies of the model: attention by data parallelism may add none.

        It may split the hosts of one copy.
        """
        degree = self.count("data_parallel") or 1
        return 1 if flags.flag_span(self.argv, self.engine.shares_copies) else degree

    def host_memory(self) -> float:
        """Return the host memory that flags and variables ask for, GiB."""
        return sum(
            kind.requested_gib(self.argv, self.recipe.env) for kind in self.engine.host_memory
        )

    def draft(self) -> tuple[str | None, int | None]:
        """Return the speculative method, and the number of tokens it drafts."""
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
    """Return the release of a version, without what a build adds; None where there is none."""
    try:
        return Version(version or "").base_version
    except InvalidVersion:
        return None


def _number(recipe: Recipe, key: str, text: object) -> float | None:
    # The engine chooses for "auto", as for no value; -1 means the same for a length.
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
