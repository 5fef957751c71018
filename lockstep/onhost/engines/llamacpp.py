"""llama.cpp's server, in an image; it serves GGUF files.

Read off llama-server 0.7.0 (build 11669), 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.onhost.core.kind import Kind
from lockstep.onhost.engines.base import Engine, HostMemory, Run
from lockstep.onhost.engines.metrics import Metrics

# What Docker itself ends with where a container or its program does not start.
_DOCKERS_OWN = (125, 126, 127)


class LlamaCpp(Engine):
    """See `Engine`."""

    def answer(self, recipes: Sequence[Mapping[str, Any]], run: Run) -> dict[str, Any]:
        """`--help` after a command line has all of it read first, and loads nothing."""
        said = run((recipes[0]["argv"][0], "--version"), {})
        version = re.search(r"version: (\S+)", said.stdout + said.stderr)
        faults: list[str] = []
        unanswered = "" if version else f"it does not say its version (exit {said.returncode})"
        known = f"{self.title} {version[1] if version else '?'}"
        for recipe in recipes if version else ():
            own = {
                name: value
                for name, value in recipe["environment"].items()
                if name.startswith(self.prefixes)
            }
            done = run((*recipe["argv"], "--help"), own)
            lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
            if done.returncode in _DOCKERS_OWN:
                unanswered = f"{known} cannot be asked: exit {done.returncode}"
            elif done.returncode:
                why = (lines or ["no reason given"])[-1]
                faults.append(f"recipe {recipe['name']}: {known} refuses it: {why}")
        return {
            "version": version[1] if version else None,
            "faults": faults,
            "unanswered": unanswered or None,
        }

    def kind(self, argv: Sequence[str]) -> Kind | None:
        if self.has(argv, "reranking") or self.value(argv, "pooling") == "rank":
            return "rerank"
        return "embedding" if self.has(argv, "embeddings") else None

    def looks_for_mmproj(self, argv: Sequence[str]) -> bool:
        """As with `-hf`, unless it is told not to; the last word counts."""
        words = ("--mmproj-auto", "--no-mmproj", "--no-mmproj-auto")
        said = [word for word in argv if word in words]
        return not said or said[-1] == words[0]

    def context(self, card: Mapping[str, Any]) -> int | None:
        return (card.get("meta") or {}).get("n_ctx")


ENGINE = LlamaCpp(
    name="llamacpp",
    title="llama.cpp",
    # The second as its own images have it, which are to be given `entrypoint: ""`.
    entries=(("llama-server",), ("/app/llama-server",)),
    entry_points={"ghcr.io/ggml-org/llama.cpp": ("/app/llama-server",)},
    runtimes=("llama-cpp",),
    hints=((re.compile(r"(?:/app/)?llama-server\b"), "llama-cpp"),),
    flags={
        "model": ("--model", "-m"),
        "served_model_name": ("--alias", "-a"),
        # Of all slots together.
        "max_model_len": ("--ctx-size", "-c"),
        "max_num_seqs": ("--parallel", "-np"),
        "cache_ram": ("--cache-ram", "-cram"),
        "kv_cache_dtype": ("--cache-type-k", "-ctk"),
        "kv_cache_dtype_v": ("--cache-type-v", "-ctv"),
        "model_url": ("--model-url", "-mu"),
        "mmproj": ("--mmproj", "-mm"),
        "mmproj_url": ("--mmproj-url", "-mmu"),
        "lora": ("--lora",),
        "draft_model": ("--model-draft", "-md"),
        "speculative_algorithm": ("--spec-type",),
        "speculative_num_draft_tokens": ("--spec-draft-n-max",),
        "embeddings": ("--embeddings", "--embedding"),
        "reranking": ("--reranking", "--rerank"),
        "revision": (),
        "draft_revision": (),
        "gpu_memory_utilization": (),
    },
    variables={
        "model": "LLAMA_ARG_MODEL",
        "hf_repo": "LLAMA_ARG_HF_REPO",
        "hf_file": "LLAMA_ARG_HF_FILE",
        "served_model_name": "LLAMA_ARG_ALIAS",
        "max_model_len": "LLAMA_ARG_CTX_SIZE",
        "max_num_seqs": "LLAMA_ARG_N_PARALLEL",
        "kv_cache_dtype": "LLAMA_ARG_CACHE_TYPE_K",
        "cache_type_v": "LLAMA_ARG_CACHE_TYPE_V",
        "speculative_algorithm": "LLAMA_ARG_SPEC_TYPE",
        "speculative_num_draft_tokens": "LLAMA_ARG_SPEC_DRAFT_N_MAX",
        "embeddings": "LLAMA_ARG_EMBEDDINGS",
        "reranking": "LLAMA_ARG_RERANKING",
        "host": "LLAMA_ARG_HOST",
        "port": "LLAMA_ARG_PORT",
        "cache_ram": "LLAMA_ARG_CACHE_RAM",
        "mlock": "LLAMA_ARG_MLOCK",
        "api_key": "LLAMA_API_KEY",
    },
    always=("--metrics",),
    weights="file",
    # `--no-mmap`, `--cpu-moe` and `--no-kv-offload` move what is counted once, and add nothing.
    host_memory=(
        HostMemory(
            what="earlier prompts",
            flags="--cache-ram|-cram",
            unit_gib=1 / 1024,
            usual_gib=8.0,
        ),
        # The file stays in memory beside what was copied to the GPU's.
        HostMemory(what="the whole file", flags="--mlock"),
    ),
    hub_model=("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"),
    on_python=False,
    version_pages=(("/props", "build_info"),),
    # The first token has an event of its own, whatever its parser holds back, and with this key the
    # count (server-task.cpp, read 2026-11).
    each_step={"timings_per_token": True},
    # Total tokens grow when a request ends; a step of the engine is a decode.
    metrics=Metrics(
        outstanding=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        moving=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total"),
        generated="llamacpp:tokens_predicted_total",
        cached="llamacpp:prompt_tokens_cached_total",
        drafts="llamacpp:spec_decode_num_drafts_total",
        drafted="llamacpp:spec_decode_num_draft_tokens_total",
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
    ),
    phases=(
        (re.compile(r"load_model: loading model"), "loading weights"),
        (re.compile(r"llama threadpool init"), "weights loaded"),
        (re.compile(r"load_model: initializing"), "making room for sequences"),
        (re.compile(r"llama_server: listening on"), "port open"),
    ),
    prefixes=("LLAMA_",),
    images=("llama.cpp", "llama-cpp"),
)
