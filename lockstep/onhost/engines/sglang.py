"""SGLang, in an image."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.core.memory_requirement import Need
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.onhost.engines.base import (
    CAPTURING,
    CONNECTORS,
    LOADING,
    OPEN,
    PATTERNS,
    TABLES,
    TOO_NEW,
    Engine,
    HostMemory,
    Sizes,
)
from lockstep.onhost.engines.engine_counters import Metrics
from lockstep.onhost.engines.engine_parser import ParsedCommand, import_or_raise_unavailable

_MISTRALS_OWN = re.compile("mistral-large-3|mistral-small-4|leanstral")


class Sglang(Engine):
    """The engine SGLang; see `Engine`."""

    def parse(self, argv: Sequence[str]) -> ParsedCommand:
        """Use the parser alone: SGLang's further handling of arguments needs the model and a GPU.

        Its variables are not checked, because SGLang keeps no complete list of them.
        """
        parser = argparse.ArgumentParser(prog="sglang serve")
        import_or_raise_unavailable(_server_args_class).add_cli_args(parser)
        start = next(
            at for at, word in enumerate(argv) if word in ("serve", "sglang.launch_server")
        )
        words = list(argv[start + 1 :])
        if words and not words[0].startswith("-"):
            words = ["--model-path", *words]
        return ParsedCommand.from_parser(parser, parser.parse_args(words))

    def request_kind(self, argv: Sequence[str]) -> Kind | None:
        """Return the kind; the flag is the same for both, and only its class shows a reranker."""
        return "embedding" if self.has(argv, "is_embedding") else None

    def weight_patterns(self, argv: Sequence[str], repository: str) -> tuple[str, ...]:
        """Return Mistral's own files first for the three models of Mistral's own format.

        For other models they come only after `model*` files (`is_mistral_native_format`).
        """
        form = self.value(argv, "load_format") or "auto"
        if form != "auto":
            return PATTERNS.get(form, ())
        own = PATTERNS["mistral"]
        first_patterns = () if _MISTRALS_OWN.search(repository.lower()) else ("model*.safetensors",)
        return (*first_patterns, *own, *PATTERNS["auto"])

    def pool_limit_gib(self, of: Sizes) -> float | None:
        return (of.share or self.share) * of.at_rest

    def memory_to_start(self, of: Sizes) -> Need:
        """Return a need whose share of available memory holds weights, image cache, one sequence.

        SGLang loads first, and ends if the share is too small. If nobody published the weights'
        size, the need is the share on a machine at rest.
        """
        share = of.share or self.share
        if of.weights is not None:
            held_gib = of.weights + self.image_cache_gib + of.sequence
            least = held_gib / share + of.start + of.host
        elif of.published_gib is not None:
            least = of.published_gib
        else:
            least = share * of.at_rest + of.start
        return Need(max(least, of.published_gib or 0.0), share, beside_gib=of.start + of.host)

    def rank_recipe_keys(
        self, *, rank: int, size: int, master: str, port: int, copies: int
    ) -> dict[str, object]:
        return {
            "nnodes": size,
            "node_rank": rank,
            "dist_init_addr": address_with_port(master, port),
        }


def _server_args_class() -> Any:
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    return ServerArgs


ENGINE = Sglang(
    name="sglang",
    title="SGLang",
    entries=(
        ("sglang", "serve"),
        ("python3", "-m", "sglang.launch_server"),
        ("python", "-m", "sglang.launch_server"),
    ),
    runtimes=("sglang",),
    hints=((re.compile(r"(?:sglang\s+serve|python3?\s+-m\s+sglang\.launch_server)\b"), "sglang"),),
    flags={
        "model": ("--model-path", "--model"),
        "tensor_parallel": ("--tp-size", "--tp", "--tensor-parallel-size"),
        "pipeline_parallel": ("--pp-size", "--pp", "--pipeline-parallel-size"),
        "data_parallel": ("--dp-size", "--dp", "--data-parallel-size"),
        "gpu_memory_utilization": ("--mem-fraction-static",),
        "max_model_len": ("--context-length",),
        "max_num_seqs": ("--max-running-requests",),
        "chunked_prefill": ("--chunked-prefill-size",),
        "draft_model": ("--speculative-draft-model-path", "--speculative-draft-model"),
        "draft_revision": ("--speculative-draft-model-revision",),
    },
    # Without it the scheduler keeps one core busy while no request runs: 101 % of a core against
    # 1.7 %, 12.1 W against 10.5 W of a Spark's module, and the next first token came as fast
    # (hasso5703/dgx-spark-qwen38#4, 2026-08-21). The flag (sgl-project/sglang#6026) is of 2025 and
    # older than every SGLang that runs on a Spark.
    always=("--sleep-on-idle",),
    # SGLang recognises Mistral's format by the list of files. For a repository's id it asks the hub
    # for the list, and offline it assumes Hugging Face's format (server_args.py of 0.5.10).
    weights="folder",
    # The second page is the one before 0.5.
    version_pages=(("/server_info", "version"), ("/get_server_info", "version")),
    shares_copies=("--enable-dp-attention",),
    # Since sgl-project/sglang#550 (June 2024); `--dist-init-addr` is older than
    # sgl-project/sglang#2709 (January 2025), which is before any Spark: no version is refused.
    spans_hosts="0",
    # 0.5.23 (arg_groups/memory_hook.py) keeps 10 GiB at least, and takes 5 % less where the model
    # reads images: 0.95 x (121.69 - 10) / 121.69.
    share=0.87,
    # SGLANG_VLM_CACHE_SIZE_MB, 100 by default (environ.py of 0.5.23, read 2026-11-22).
    image_cache_gib=100 / 1024,
    # As public code writes them (2026-11); no parser of a release was asked. The hierarchical cache
    # is twice the KV cache by default.
    host_memory=(
        HostMemory(
            content="a second copy of KV blocks",
            flags=(
                "--enable-hierarchical-cache|--enable-lmcache|--enable-hisparse"
                "|--disaggregation-decode-enable-offload-kvcache"
            ),
        ),
        HostMemory(
            content="weights",
            flags="--cpu-offload-gb|--offload-group-size|--enable-(?:draft-)?weights-cpu-backup",
        ),
        CONNECTORS,
        TABLES,
    ),
    unsteady={"eagle": "one nightly of it fell from 36.5 to 12.5 tok/s"},
    # The number counts the token of the large model too: these are 5 of the draft.
    corrupting_drafts={
        "dspark": (
            6,
            "on SM120 a draft depth of 5 changed identifiers in 7 of 2,138 answers, and depths of "
            "3 and 4 in none (sgl-project/sglang#33800, 2026-08; sgl-project/sglang#34189 mends "
            "one cause)",
        )
    },
    corrupting_w4a16={
        ("--moe-runner-backend", "marlin"): (
            "Ling-3.0-flash-fp4 put foreign tokens into its answers on a GB10 "
            "(inclusionAI/Ling#26, 2026-09)"
        )
    },
    # `compressed_tensors_w4a4_nvfp4_moe.py`, read in the wheels: SGLang's own kernel up to
    # 0.5.15.post1, FlashInfer's CUTLASS in 0.5.16, 0.5.17 (2026-11-26) and 0.5.23 (2026-11-25). It
    # checks `--moe-runner-backend` for `flashinfer_trtllm` alone, which is for the family 10.x.
    # Counter-report: sgl-project/sglang#34192 has it serving on Sparks in 2026-07.
    corrupting_experts={
        ">=0.5.16": (
            "these releases compute them with FlashInfer's CUTLASS kernels, and no flag avoids "
            "that on a Spark; with them vLLM was ready there and talked garbage until Marlin took "
            "over (MiaAI-Lab/GLM-5.3-Flash-NVFP4-Dual-DGX-Spark#1, 2026-08), and froze one "
            "(article 000)"
        )
    },
    # Its scheduler ends at a request for log-probabilities (sgl-project/sglang#19761, open in
    # 2026-03).
    logprobs_drafting=False,
    # No `each_step`: SGLang refuses `return_token_ids` in a streamed chat
    # (sgl-project/sglang#30917).
    compile_pattern=r"DeepGEMM JIT Compiling",
    # Names and lines of 0.5.23 (read in its sources, 2026-11).
    metrics=Metrics(
        outstanding=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        moving=(
            "sglang:prompt_tokens_total",
            "sglang:generation_tokens_total",
            # Grows also while a long prompt is read and no token comes yet.
            "sglang:token_usage",
            "sglang:num_requests_total",
        ),
        finished_requests="sglang:num_requests_total",
        generated_tokens="sglang:generation_tokens_total",
        cached_tokens="sglang:cached_tokens_total",
        tokens_per_step="sglang:spec_accept_length",
        # SGLang counts the tokens of a request only when the request ends.
        rate="sglang:gen_throughput",
    ),
    phases=(
        TOO_NEW,
        LOADING,
        (re.compile(r"Load weight begin"), "loading weights"),
        (re.compile(r"Load weight end"), "weights loaded"),
        CAPTURING,
        (re.compile(r"Capture cuda graph begin"), "capturing CUDA graphs"),
        OPEN,
        (re.compile(r"The server is fired up"), "port open"),
    ),
    prefixes=("SGLANG_", "SGL_"),
    # It checks every 5 s whether it was asked (`sigterm_watchdog` of 0.5.23). Killed while its
    # schedulers release their memory, it left the GPU's memory taken for more than 30 s
    # (sgl-project/sglang#31871, 2026-07-21).
    end_s=10.0,
    # SGLang ends itself with SIGKILL when it is asked to stop.
    success=(*Engine.success, "137"),
    images=("sglang",),
    # SGLang 0.5, 2026-11.
    tells=(
        r"[Bb]ackend|[Qq]uantiz|[Mm]emory pool|Load weight|avail(?:able)? mem|KV [Cc]ache"
        r"|max_total_num_tokens|[Cc]apture cuda graph end"
    ),
    arguments=(
        *("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
        *("moe_runner_backend", "fp4_gemm_runner_backend", "quantization", "kv_cache_dtype"),
        *("mem_fraction_static", "context_length", "max_total_tokens", "speculative_algorithm"),
        *("chunked_prefill_size", "disable_cuda_graph"),
    ),
)
