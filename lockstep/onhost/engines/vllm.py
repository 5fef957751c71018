"""vLLM, in a venv of the host or in an image."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
    CommandGuard,
    Engine,
    HostMemory,
    Sizes,
)
from lockstep.onhost.engines.engine_counters import Metrics
from lockstep.onhost.engines.engine_parser import ParsedCommand, import_or_raise_unavailable


class Vllm(Engine):
    """The engine vLLM; see `Engine`."""

    def sparkrun_runtime(self, runtime_name: str, command: str, defaults: Mapping[str, Any]) -> str:
        if runtime_name != "vllm":
            return runtime_name
        executor = str(defaults.get("distributed_executor_backend", "")).lower()
        ray = executor == "ray" or _RAY.search(command)
        return "vllm-ray" if ray else "vllm-distributed"

    def request_kind(self, argv: Sequence[str]) -> Kind | None:
        """Return the kind by `--task`, or by `--runner` and `--convert`, which alone 0.32 has.

        `--convert auto` goes by the class: a class for classification ranks texts. The class is in
        the checkpoint, or in `--hf-overrides`.
        """
        task = self.value(argv, "convert") or self.value(argv, "task")
        if task in ("classify", "score"):
            return "rerank"
        if task in ("embed", "embedding"):
            return "embedding"
        if self.value(argv, "runner") != "pooling":
            return None
        overrides = self.value(argv, "hf_overrides") or ""
        return "rerank" if "Classification" in overrides else "embedding"

    def weight_patterns(self, argv: Sequence[str], repository: str) -> tuple[str, ...]:
        """Return Mistral's own files first by default (since 0.12: vllm-project/vllm#28659)."""
        form = self.value(argv, "load_format") or "auto"
        own = PATTERNS["mistral"] if form == "auto" else ()
        return (*own, *PATTERNS.get(form, ()))

    def variable_fault(self, environment: Mapping[str, str]) -> str | None:
        known_variables = import_or_raise_unavailable(_import_vllm_parts)[0].environment_variables
        for variable in environment:
            if not variable.startswith(self.prefixes):
                continue
            if variable not in known_variables:
                return f"does not know the variable {variable}"
            try:
                known_variables[variable]()
            except (TypeError, ValueError) as error:
                return f"refuses the value of {variable}: {error}"
        return None

    def parse(self, argv: Sequence[str]) -> ParsedCommand:
        _, commands, parser_class = import_or_raise_unavailable(_import_vllm_parts)
        parser = parser_class(prog="vllm")
        subparsers = parser.add_subparsers(dest="subparser")
        reading = ParsedCommand({}, {})
        for command in commands():
            own = import_or_raise_unavailable(functools.partial(command.subparser_init, subparsers))
            namespace = parser.parse_args(argv[1:])
            reading = ParsedCommand.from_parser(own, namespace)
            template = getattr(namespace, "chat_template", None)
            if isinstance(template, str) and template.startswith("/"):
                # The template is among the weights, which may not be here yet.
                namespace.chat_template = None
            command.validate(namespace)
        return reading

    def recipe_kernels(
        self, argv: Sequence[str], environment: Mapping[str, str], traits: Collection[str]
    ) -> list[str]:
        backend = self.value(argv, "attention_backend") or environment.get("VLLM_ATTENTION_BACKEND")
        attention = (backend or "FLASH_ATTN").upper()
        quantisation = (self.value(argv, "quantization") or "").lower()
        widths = [
            width_name
            for width_name in ("FP8", "FP4")
            if width_name in traits or width_name.lower() in quantisation
        ]
        part_names = ["matrix product", "normalisation", "sampler", f"attention {attention}"]
        if attention.endswith("_MLA"):
            # This kernel reads a prompt, whichever kernel decodes.
            part_names.append("attention FLASH_ATTN")
        part_names += [f"{width} product" for width in widths]
        if "experts" in traits:
            moe_backend = self.value(argv, "moe_backend") or "auto"
            if widths:
                part_names += [f"experts {moe_backend} {width}" for width in widths]
            else:
                part_names.append(
                    "experts triton" if moe_backend == "auto" else f"experts {moe_backend}"
                )
        return part_names

    def pool_limit_gib(self, of: Sizes) -> float | None:
        return None if of.kv_cache else (of.share or self.share) * of.total

    def memory_to_start(self, of: Sizes) -> Need:
        """Return its share of MemTotal, which vLLM checks before it loads (`request_memory`).

        The memory beyond the share that it takes once it serves must be available too. A KV cache
        given in bytes changes nothing about that. If a recipe states its memory and names no share,
        as one for the CPU build, the stated memory counts.
        """
        if of.share is None and of.published_gib is not None:
            return Need(of.published_gib)
        fixed_gib = of.published_gib or 0.0
        if of.kv_cache is not None and of.weights is not None:
            held_gib = of.start + of.weights + of.kv_cache + of.overhead + of.host
            fixed_gib = max(fixed_gib, held_gib)
        share = of.share or self.share
        return Need(fixed_gib, share, of_total=True, beside_gib=of.start + of.beyond + of.host)

    def rank_recipe_keys(
        self, *, rank: int, size: int, master: str, port: int, copies: int
    ) -> dict[str, object]:
        headless = True if rank else None
        if copies > 1:
            return {
                "data_parallel_size_local": 1,
                "data_parallel_start_rank": rank or None,
                "data_parallel_address": master,
                "data_parallel_rpc_port": port,
                "headless": headless,
            }
        return {
            "nnodes": size,
            "node_rank": rank,
            "master_addr": master,
            "master_port": port,
            "distributed_executor_backend": self.executor,
            "headless": headless,
        }


def _import_vllm_parts() -> tuple[Any, Any, Any]:
    from vllm import envs

    # The command line's own entry has kept its place through all versions; the code behind it has
    # moved.
    from vllm.entrypoints.cli.serve import cmd_init

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    _pretend_gpu()
    return envs, cmd_init, FlexibleArgumentParser


def _pretend_gpu() -> None:
    """Let the parser list its defaults without a GPU: without a device it raises instead.

    Ran on 0.32.0's own parser, 2026-11.
    """
    with contextlib.suppress(ImportError):
        from vllm.platforms import current_platform

        if not current_platform.device_type:
            current_platform.device_type = "cuda"


_API = "vllm.entrypoints.openai.api_server"
_RAY = re.compile(r"--distributed-executor-backend[\s=]+ray\b")
_DRAFT = ("--speculative-config", "-sc")

# On compute capability 12.1 FlashInfer's MoE kernels were seen to take the whole host down (article
# 000, 2026-05), and the FP4 kernel to end with an illegal instruction
# (flashinfer-ai/flashinfer#2065, 2025-11-08). The automatic choice there is FlashInfer's CUTLASS
# kernel for NVFP4, and for FP8 with one scale per tensor: it counts the family 12.x as supported
# (vLLM at 8e6f4314, 2026-03-16: fused_moe/oracle/nvfp4.py, oracle/fp8.py and
# flashinfer_cutlass_moe.py).
_GUARD = CommandGuard(
    # It wins over everything else (vllm-project/vllm#33807, 2026-02-25). The flag is given even
    # before the parser has said whether it takes it: an engine without the flag ends at once and
    # says why, while a missing guard freezes the machine.
    flag="--moe-backend",
    # Quantised experts accept Marlin on every GPU since 7.5, and NVIDIA's Spark playbooks use it
    # (dgx-spark-playbooks, nvidia/nemotron and nvidia/vllm, 2026-07).
    quantised_value="marlin",
    # Unquantised experts refuse Marlin, a weight-only kernel ("not supported for unquantized MoE",
    # vLLM's oracle/unquantized.py, read 2026-11).
    unquantised_value="triton",
    # FlashInfer's CUTLASS kernels, by name or by the automatic choice.
    freezing=frozenset({"auto", "flashinfer_cutlass"}),
    draft_key="moe_backend",
    # `latency`, which article 000 names, is no guard. It is read only if one of the variables below
    # is on, and means CUTLASS on every GPU outside the family 10.x (vLLM at 8e6f4314,
    # quantization/utils/flashinfer_utils.py). vLLM dropped it, and the other variables, on
    # 2026-06-11 (vllm-project/vllm#44992).
    variable="VLLM_FLASHINFER_MOE_BACKEND",
    freezing_value="throughput",
)

ENGINE = Vllm(
    name="vllm",
    title="vLLM",
    entries=(("vllm", "serve"),),
    # The entry point of its image until 2025; it takes the same flags.
    older_entries=(("python3", "-m", _API), ("python", "-m", _API)),
    entry_points={"vllm/vllm-openai": ("vllm", "serve")},
    runtimes=("vllm", "vllm-distributed", "vllm-ray", "eugr-vllm"),
    hints=(
        (re.compile(r"vllm\s+serve\b"), "vllm"),
        (re.compile(r"python3?\s+-m\s+vllm\.entrypoints\."), "vllm"),
    ),
    in_venv=True,
    usual=True,
    flags={
        "tensor_parallel": ("--tensor-parallel-size", "-tp"),
        "pipeline_parallel": ("--pipeline-parallel-size", "-pp"),
        "data_parallel": ("--data-parallel-size", "-dp"),
        "quantization": ("--quantization", "-q"),
        "speculative_config": _DRAFT,
        "compilation_config": ("--compilation-config", "-cc"),
        "optimization_level": ("--optimization-level", "-O"),
        "nnodes": ("--nnodes", "-n"),
        "node_rank": ("--node-rank", "-r"),
    },
    positional_model=True,
    version_pages=(("/version", "version"),),
    # Read in 0.26.0 and 0.32.0 (chat_completion/serving.py): without it no event leaves while a
    # parser holds text back. Events with the ids alone are vllm-project/vllm#29074 (December 2025);
    # an engine without the key ignores it.
    each_step={"return_token_ids": True},
    # jit_monitor.py of 0.26.0 and 0.32.0: once for each kernel.
    compile_pattern=r"JIT compilation during inference",
    draft_config=_DRAFT,
    dotted_flags=True,
    # 0.92 in 0.32.0 (config/cache.py), 0.9 in the fork; the larger one needs more memory.
    share=0.92,
    counts_overhead=True,
    pages=True,
    # As issues and public code write them (2026-11); no parser of a release was asked.
    host_memory=(
        # `--kv-offloading-size N` took 1.92 N of shared memory (vllm-project/vllm#53042).
        HostMemory(
            content="a second copy of KV blocks",
            flags="--kv-offloading-size|--swap-space|--kv-transfer-config",
        ),
        # `--cpu-offload-gb N` took 1.9 N (vllm-project/vllm#56410).
        HostMemory(content="weights", flags="--cpu-offload-gb|--offload-group-size"),
        CONNECTORS,
        TABLES,
        # 4 GiB by default, which the observed starts included.
        HostMemory(
            content="pictures that were read",
            flags="--mm-processor-cache-gb",
            unit_gib=1.0,
            usual_gib=4.0,
            seen_gib=4.0,
        ),
    ),
    guard=_GUARD,
    public=True,
    environment={"VLLM_NO_USAGE_STATS": "1"},
    # Read in 0.26.0 (`EngineArgs._set_default_chunked_prefill_and_prefix_caching_args`: "opt-in for
    # now") and in 0.32.0. For releases between those the larger answer is assumed.
    keeps_states="0.27",
    # 0.33.0 (chat_completion/protocol.py); met with 0.23 (open-webui#26655, 2026-07-02).
    refused_shapes=("empty_tools",),
    # `--nnodes` is vllm-project/vllm#23691, opened in August 2025 and merged in November; 0.12.0 of
    # December is the first minor release after that. A patch release of 0.11 may have it too. It is
    # refused, because nobody here has seen it work. The flags stand in 0.32.0's own parser, and
    # were run on the lab.
    spans_hosts="0.12",
    executor="mp",
    spans_copies=True,
    address_variable="VLLM_HOST_IP",
    # Names and lines of 0.18 to 0.32 (read in their sources, 2026-11).
    metrics=Metrics(
        outstanding=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        moving=(
            "vllm:prompt_tokens_total",
            "vllm:generation_tokens_total",
            # Grows also while a long prompt is read and no token comes yet.
            "vllm:kv_cache_usage_perc",
            "vllm:request_success_total",
        ),
        given_up='finished_reason="abort"',
        finished_requests="vllm:request_success_total",
        generated_tokens="vllm:generation_tokens_total",
        cached_tokens="vllm:prefix_cache_hits_total",
        drafts="vllm:spec_decode_num_drafts_total",
        drafted_tokens="vllm:spec_decode_num_draft_tokens_total",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
    ),
    phases=(
        TOO_NEW,
        (re.compile(r"non-default args:"), "reading its configuration"),
        (re.compile(r"Initializing a V1 LLM engine"), "starting its engine process"),
        LOADING,
        (re.compile(r"Loading weights took (?P<s>[\d.]+) seconds"), "weights loaded in {s} s"),
        (re.compile(r"Model loading took (?P<gib>[\d.]+) GiB"), "model takes {gib} GiB"),
        (re.compile(r"Starting to load model"), "loading the model"),
        # `takes` before 0.20.
        (re.compile(r"torch\.compile .*t(?:ook|akes) (?P<s>[\d.]+) s"), "compiled in {s} s"),
        (re.compile(r"for vLLM's torch\.compile|Dynamo|Compiling a graph"), "compiling"),
        CAPTURING,
        (re.compile(r"Graph capturing"), "capturing CUDA graphs"),
        (re.compile(r"GPU KV cache size: (?P<n>[\d,]+) tokens"), "KV cache for {n} tokens"),
        (re.compile(r"Starting vLLM (?:API )?server"), "opening the port"),
        OPEN,
    ),
    prefixes=("VLLM_",),
    images=("vllm",),
    # vLLM 0.17-0.32, 2026-11.
    tells=(
        r"[Bb]ackend|[Qq]uantiz|for NVFP4 GEMM|Resolved architecture|[Mm]emory (?:baseline|profil)"
        r"|[Mm]odel loading took|KV [Cc]ache|Maximum concurrency|Free memory on device"
        r"|graph capturing|Using max model len|vLLM (?:API server )?version"
    ),
    packages=(
        r"vllm|torch\w*|triton|transformers|tokenizers|numpy|flashinfer.*|mistral-common|xgrammar"
        r"|compressed-tensors|safetensors|nvidia-(?:nccl|cutlass|cudnn).*|huggingface-hub"
    ),
)
