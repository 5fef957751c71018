"""Reads the command lines of vLLM and SGLang as far as the stand-in acts on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

#: Flags that the versions in the images no longer have (tried with their own parsers, 2026-11).
REMOVED = {
    "vllm": ("--disable-log-requests", "--swap-space", "--task", "--cuda-graph-sizes"),
    "sglang": ("--cuda-graph-max-bs", "--cuda-graph-bs", "--mamba-scheduler-strategy"),
}
#: Values that vLLM 0.32.0 accepts for the flag (tried with its own parser, 2026-11).
MOE_BACKENDS = (
    *("aiter", "aiter_mega_moe", "aiter_triton_mxfp4_bf16", "auto", "b12x"),
    *("batched_triton", "cutlass", "deep_gemm", "deep_gemm_mega_moe", "emulation"),
    *("flashinfer_b12x", "flashinfer_cutedsl", "flashinfer_cutlass"),
    *("flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_deep_gemm", "flashinfer_trtllm"),
    *("flydsl", "hpc", "humming", "marlin", "rdna3", "triton", "triton_unfused"),
)
#: The first release that has the flag is not established; 0.15 is older (vllm#33807, 2026-02-25).
WITHOUT_MOE_BACKEND = ("0.15.",)
#: Default port of each engine, and its default share of the memory.
DEFAULT_PORT = {"vllm": 8000, "sglang": 30000}
DEFAULT_FRACTION = {"vllm": 0.9, "sglang": 0.85}


@dataclass(frozen=True)
class Serving:
    """The settings that a command line gives.

    ``memory_fraction`` is of the unified memory (vLLM) or of what is available at the start
    (SGLang); ``hosts`` split the weights among them.
    """

    engine: str
    model: str
    names: tuple[str, ...]
    host: str
    port: int
    memory_fraction: float
    context: int
    draft: str | None
    revision: str | None
    api_key: str | None
    thinking: bool
    text_only: bool
    metrics: bool
    hosts: int = 1
    #: "embed" or "classify" for a model that generates nothing.
    pooling: str = ""


class UsageError(Exception):
    """The command line is one that the real engine refuses; the text is what it prints."""


def values_of(argv: Sequence[str], *flags: str) -> list[str]:
    """Every value of the flags, in the order given; a flag without a value gives ``""``."""
    values: list[str] = []
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name not in flags:
            continue
        values.append(value) if equals else values.extend(_following(argv, position) or [""])
    return values


def _following(argv: Sequence[str], position: int) -> list[str]:
    values = []
    for word in argv[position + 1 :]:
        if word.startswith("--"):
            break
        values.append(word)
    return values


def parse(engine: str, argv: Sequence[str], version: str = "") -> Serving:
    """Read the words after ``serve``. ``UsageError`` for what the real parser refuses."""

    def last(default: str | None, *flags: str) -> str | None:
        values = values_of(argv, *flags)
        return values[-1] if values else default

    for word in argv:
        if word.partition("=")[0] in REMOVED[engine]:
            raise UsageError(f"{engine}: error: unrecognized arguments: {word}")
    for backend in values_of(argv, "--moe-backend") if engine == "vllm" else ():
        if version.startswith(WITHOUT_MOE_BACKEND):
            raise UsageError("vllm: error: unrecognized arguments: --moe-backend")
        if backend not in MOE_BACKENDS:
            raise UsageError(f"vllm: error: argument --moe-backend: invalid choice: {backend!r}")
    model = last(None, "--model", "--model-path")
    if model is None and engine == "vllm" and argv and not argv[0].startswith("-"):
        model = argv[0]
    if not model:
        raise UsageError(f"{engine}: error: the following arguments are required: model")
    port = last(str(DEFAULT_PORT[engine]), "--port") or ""
    fraction = last(
        str(DEFAULT_FRACTION[engine]), "--gpu-memory-utilization", "--mem-fraction-static"
    )
    context = last("32768", "--max-model-len", "--context-length") or ""
    tensor = last("1", "--tensor-parallel-size", "--tp-size", "--tp", "-tp") or ""
    pipeline = last("1", "--pipeline-parallel-size", "--pp-size", "--pp", "-pp") or ""
    template = _json(last("{}", "--default-chat-template-kwargs"))
    try:
        return Serving(
            engine=engine,
            model=model,
            names=tuple(values_of(argv, "--served-model-name")) or (model,),
            host=last("0.0.0.0" if engine == "vllm" else "127.0.0.1", "--host") or "",
            port=int(port),
            memory_fraction=float(fraction or ""),
            context=int(context),
            draft=_draft(argv),
            revision=last(None, "--revision"),
            api_key=last(None, "--api-key"),
            thinking=bool(template.get("enable_thinking", "--reasoning-parser" in argv)),
            text_only="--language-model-only" in argv,
            metrics=engine == "vllm" or "--enable-metrics" in argv,
            pooling=_pooling(engine, argv),
            hosts=int(tensor) * int(pipeline),
        )
    except ValueError as error:
        raise UsageError(f"{engine}: error: argument: {error}") from None


def _pooling(engine: str, argv: Sequence[str]) -> str:
    if engine == "sglang":
        return "embed" if "--is-embedding" in argv else ""
    convert, runner = values_of(argv, "--convert"), values_of(argv, "--runner")
    if convert[-1:] in (["embed"], ["classify"]):
        return convert[-1]
    overrides = " ".join(values_of(argv, "--hf-overrides"))
    if runner[-1:] == ["pooling"]:
        return "classify" if "Classification" in overrides else "embed"
    return ""


def _draft(argv: Sequence[str]) -> str | None:
    for text in values_of(argv, "--speculative-config"):
        model = _json(text).get("model")
        return str(model) if model else None
    drafts = values_of(argv, "--speculative-draft-model-path", "--speculative-draft-model")
    return drafts[-1] if drafts else None


def _json(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"error: value {text!r} cannot be converted to JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"error: value {text!r} is not a JSON object")
    return value
