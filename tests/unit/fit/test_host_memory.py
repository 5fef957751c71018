"""Memory of the host is the GPU's memory: what asks for it on a Spark is counted or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from a_card import KNOWN

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import KnownCheckpoint
from lockstep.core.figures import Figure
from lockstep.core.findings import Finding
from lockstep.fit.fit import fit
from lockstep.fit.recipe_checks import check
from lockstep.recipes import recipe_file
from lockstep.recipes.recipe_file import Recipe

COMMANDS = {
    "vllm": "vllm serve {model} --host 127.0.0.1 --gpu-memory-utilization 0.7",
    "sglang": "sglang serve --model-path {model} --host 127.0.0.1 --mem-fraction-static 0.7",
    "llamacpp": "llama-server --model {model} --host 127.0.0.1 --ctx-size 8192",
}


def recipe(engine: str, words: str = "", extra: str = "", env: str = "") -> Recipe:
    container = "container: org/image:1\n"
    text = f"model: org/m:Q8_0\n{container}{extra}command: |\n  {COMMANDS[engine]} {words}\n"
    if env:
        text += f"env:\n  {env}\n"
    return recipe_file.parse(text, Path("x.yaml"))


def refusals(candidate: Recipe) -> list[Finding]:
    return [item for item in check(candidate, KNOWN) if item.code == "host-offload"]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "--kv-offloading-size 40"),
        ("vllm", "--kv_offloading_size=40"),
        ("vllm", "--cpu-offload-gb 20"),
        ("vllm", "--swap-space 4"),
        ("vllm", "--offload-group-size 4 --offload-num-in-group 1"),
        ("vllm", '--kv-transfer-config \'{"kv_connector":"LMCacheConnectorV1"}\''),
        ("vllm", "--kv-transfer-config.kv_connector OffloadingConnector"),
        ("sglang", "--cpu-offload-gb 20"),
        ("sglang", "--enable-hierarchical-cache --hicache-size 30"),
        ("sglang", "--enable-lmcache"),
        ("sglang", "--offload-group-size 2"),
        ("sglang", "--enable-weights-cpu-backup --enable-memory-saver"),
        ("llamacpp", "--mlock"),
        ("llamacpp", "-cram -1"),
    ],
)
def test_a_second_copy_in_host_memory_is_refused(engine: str, words: str) -> None:
    [finding] = refusals(recipe(engine, words))
    assert finding.severity == "error"
    flag = words.replace("=", " ").split()[0].partition(".")[0]
    assert flag.replace("_", "-") in finding.message
    assert "the same memory" in finding.message


@pytest.mark.parametrize(
    ("engine", "env", "name"),
    [
        ("vllm", 'LMCACHE_MAX_LOCAL_CPU_SIZE: "40"', "LMCACHE_MAX_LOCAL_CPU_SIZE"),
        ("sglang", 'LMCACHE_LOCAL_CPU: "True"', "LMCACHE_LOCAL_CPU"),
        ("vllm", 'MOONCAKE_GLOBAL_SEGMENT_SIZE: "32gb"', "MOONCAKE_GLOBAL_SEGMENT_SIZE"),
        ("vllm", "LMCACHE_CONFIG_FILE: /etc/lmcache.yaml", "LMCACHE_CONFIG_FILE"),
        ("llamacpp", 'LLAMA_ARG_MLOCK: "1"', "--mlock"),
    ],
)
def test_a_variable_counts_as_the_flag(engine: str, env: str, name: str) -> None:
    [finding] = refusals(recipe(engine, env=env))
    assert name in finding.message


@pytest.mark.parametrize(
    ("engine", "words", "env"),
    [
        ("vllm", "--kv-offloading-size 0 --cpu-offload-gb 0 --swap-space 0", ""),
        ("vllm", "--mm-processor-cache-type shm --kv-cache-memory-bytes 4294967296", ""),
        ("vllm", "", 'LMCACHE_LOCAL_CPU: "False"'),
        ("vllm", "", 'VLLM_CPU_KVCACHE_SPACE: "4"'),
        ("sglang", "--cpu-offload-gb 0 --enable-memory-saver", ""),
        ("llamacpp", "--no-mmap --cpu-moe --cache-ram 4096", ""),
    ],
)
def test_what_takes_no_second_copy_is_no_finding(engine: str, words: str, env: str) -> None:
    assert refusals(recipe(engine, words, env=env)) == []


@pytest.mark.parametrize(
    ("size", "wrong"),
    [("16gb", False), ("64gb", True), ("64g", True), ("65536m", True), (2**36, True)],
)
def test_more_shared_memory_than_engines_use_is_somebody_s_plan(size: object, wrong: bool) -> None:
    candidate = recipe("vllm", extra=f"executor_config: {{shm_size: {size}}}\n")
    findings = refusals(candidate)
    assert bool(findings) is wrong
    assert not wrong or "executor_config.shm_size" in findings[0].message


def needs(candidate: Recipe) -> float:
    weights = Figure("weights", 20 * 2**30 / 1e9, "GB", "a test", "2026-11-22", "quoted")
    model = KnownCheckpoint(candidate.model, weights_gb=weights)
    return fit(candidate, replace(KNOWN.knowledge, checkpoints={model.id: model})).needs_gib


def test_what_llama_cpp_keeps_of_earlier_prompts_is_counted_before_the_memory_watch_ends_it() -> (
    None
):
    """8 GiB where nothing is said, by its flag or its variable else."""
    none = needs(recipe("llamacpp", "--cache-ram 0"))
    assert needs(recipe("llamacpp")) == pytest.approx(none + 8)
    assert needs(recipe("llamacpp", "-cram 20480")) == pytest.approx(none + 20)
    assert needs(recipe("llamacpp", env='LLAMA_ARG_CACHE_RAM: "2048"')) == pytest.approx(none + 2)


def test_a_cache_of_pictures_beyond_the_usual_one_is_counted() -> None:
    none, large = needs(recipe("vllm")), needs(recipe("vllm", "--mm-processor-cache-gb 12"))
    assert needs(recipe("vllm", "--mm-processor-cache-gb 4")) == pytest.approx(none)
    assert large > none and large == pytest.approx(none + 8, abs=4)


def sequence_kib(words: str) -> float:
    """KiB of one sequence of 8,192 tokens whose one layer keeps 1 KiB for each of 1,024."""
    layer = Layers("sliding", 1, kv_heads=1, head_dim=256, window=1024)
    size = Figure("weights", 8, "GB", "a test", "2026-11-29", "quoted")
    model = KnownCheckpoint("org/m:Q8_0", weights_gb=size, architecture=Architecture((layer,)))
    knowledge = replace(KNOWN.knowledge, checkpoints={model.id: model})
    prediction = fit(recipe("llamacpp", words), knowledge)
    assert prediction.sequence_gib is not None
    return prediction.sequence_gib * 2**20


def test_llama_cpp_keeps_a_step_beside_each_window_or_all_if_told_so() -> None:
    assert sequence_kib("") == 1024 + 512
    assert sequence_kib("-ub 256") == 1024 + 256
    assert sequence_kib("--swa-full") == 8192
