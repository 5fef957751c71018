"""llama.cpp's server, in an image; it serves GGUF files.

Read in llama-server 0.7.0 (build 11669), 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.onhost.engines.base import Engine, HostMemory, Run
from lockstep.onhost.engines.engine_counters import Metrics

# Exit codes of Docker itself if a container or its program does not start.
_DOCKERS_OWN = (125, 126, 127)


class LlamaCpp(Engine):
    """The engine llama.cpp; see `Engine`."""

    def recipe_faults_in_image(
        self, recipes: Sequence[Mapping[str, Any]], run: Run
    ) -> dict[str, Any]:
        """Ask with `--help` after each command line: that reads all of it, and loads nothing."""
        version_result = run((recipes[0]["argv"][0], "--version"), {})
        version = re.search(r"version: (\S+)", version_result.stdout + version_result.stderr)
        faults: list[str] = []
        no_answer = (
            "" if version else f"it does not say its version (exit {version_result.returncode})"
        )
        engine_name = f"{self.title} {version[1] if version else '?'}"
        for recipe in recipes if version else ():
            own = {
                name: value
                for name, value in recipe["environment"].items()
                if name.startswith(self.prefixes)
            }
            result = run((*recipe["argv"], "--help"), own)
            lines = [line for line in result.stderr.splitlines() if line.startswith("error")]
            if result.returncode in _DOCKERS_OWN:
                no_answer = f"{engine_name} cannot be asked: exit {result.returncode}"
            elif result.returncode:
                why = (lines or ["no reason given"])[-1]
                faults.append(f"recipe {recipe['name']}: {engine_name} refuses it: {why}")
        return {
            "version": version[1] if version else None,
            "faults": faults,
            "unanswered": no_answer or None,
        }

    def request_kind(self, argv: Sequence[str]) -> Kind | None:
        if self.has(argv, "reranking") or self.value(argv, "pooling") == "rank":
            return "rerank"
        return "embedding" if self.has(argv, "embeddings") else None

    def looks_for_mmproj(self, argv: Sequence[str]) -> bool:
        """Tell whether it takes one, as with `-hf`, unless a flag forbids it.

        The last such flag counts.
        """
        words = ("--mmproj-auto", "--no-mmproj", "--no-mmproj-auto")
        mmproj_words = [word for word in argv if word in words]
        return not mmproj_words or mmproj_words[-1] == words[0]

    def context_in_model_card(self, card: Mapping[str, Any]) -> int | None:
        return (card.get("meta") or {}).get("n_ctx")


ENGINE = LlamaCpp(
    name="llamacpp",
    title="llama.cpp",
    # The second is the one of its own images, which need `entrypoint: ""`.
    entries=(("llama-server",), ("/app/llama-server",)),
    entry_points={"ghcr.io/ggml-org/llama.cpp": ("/app/llama-server",)},
    runtimes=("llama-cpp",),
    hints=((re.compile(r"(?:/app/)?llama-server\b"), "llama-cpp"),),
    flags={
        "model": ("--model", "-m"),
        "served_model_name": ("--alias", "-a"),
        # For all slots together.
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
        "max_num_batched_tokens": ("--ubatch-size", "-ub"),
        "swa_full": ("--swa-full",),
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
    # The usual --ubatch-size. A cache of windows is as large as both together, and is rounded up to
    # 256 tokens, which is not counted (llama-kv-cache-iswa.cpp, 2026-11).
    window_step=512,
    # As K and as V, which lacks the rotary part.
    latent_copies=2,
    latent_reason="builds from before 2026-01-25 keep a V beside the latent (llama.cpp#19067)",
    # `--no-mmap`, `--cpu-moe` and `--no-kv-offload` move memory that is counted once, and add none.
    host_memory=(
        HostMemory(
            content="earlier prompts",
            flags="--cache-ram|-cram",
            unit_gib=1 / 1024,
            usual_gib=8.0,
        ),
        # The file stays in memory beside the copy in the GPU's.
        HostMemory(content="the whole file", flags="--mlock"),
    ),
    hub_model=("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"),
    on_python=False,
    version_pages=(("/props", "build_info"),),
    # The first token has an event of its own, whatever its parser holds back, and with this key the
    # event has the count (server-task.cpp, read 2026-11).
    each_step={"timings_per_token": True},
    # Total tokens grow when a request ends, decodes at every step of the engine.
    metrics=Metrics(
        outstanding=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        moving=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total"),
        generated_tokens="llamacpp:tokens_predicted_total",
        cached_tokens="llamacpp:prompt_tokens_cached_total",
        drafts="llamacpp:spec_decode_num_drafts_total",
        drafted_tokens="llamacpp:spec_decode_num_draft_tokens_total",
        accepted_tokens="llamacpp:spec_decode_num_accepted_tokens_total",
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
