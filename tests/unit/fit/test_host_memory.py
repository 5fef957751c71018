"""Memory of the host is the GPU's memory: what asks for it on a Spark is counted or refused.

Likewise the memory that must be available before an engine starts, by the engines' arithmetic.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from a_card import KNOWN, answer

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import KnownCheckpoint
from lockstep.core.figures import Figure
from lockstep.core.findings import Finding
from lockstep.fit.fit import fit
from lockstep.fit.recipe_checks import check
from lockstep.onhost.core.memory_requirement import Need
from lockstep.recipes import recipe_file
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving

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


CONNECTOR = '--kv-transfer-config \'{"kv_connector":"LMCacheConnectorV1"}\''


@pytest.mark.parametrize(
    ("engine", "words", "env", "name"),
    [
        ("vllm", "--kv-offloading-size 40", "", "--kv-offloading-size"),
        ("vllm", "--cpu-offload-gb 20", "", "--cpu-offload-gb"),
        ("vllm", "--offload-group-size 4 --offload-num-in-group 1", "", "--offload-group-size"),
        ("vllm", CONNECTOR, "", "--kv-transfer-config"),
        ("vllm", "--kv-transfer-config.kv_connector X", "", "--kv-transfer-config"),
        ("sglang", "--enable-hierarchical-cache --hicache-size 3", "", "--enable-hierarchical"),
        ("sglang", "--enable-weights-cpu-backup", "", "--enable-weights-cpu-backup"),
        ("llamacpp", "--mlock", "", "--mlock"),
        ("llamacpp", "-cram -1", "", "-cram"),
        # A variable counts as the flag.
        ("sglang", "", 'LMCACHE_LOCAL_CPU: "True"', "LMCACHE_LOCAL_CPU"),
        ("vllm", "", "LMCACHE_CONFIG_FILE: /etc/lmcache.yaml", "LMCACHE_CONFIG_FILE"),
        ("llamacpp", "", 'LLAMA_ARG_MLOCK: "1"', "--mlock"),
        # What takes no second copy.
        ("vllm", "--kv-offloading-size 0 --cpu-offload-gb 0 --swap-space 0", "", ""),
        ("vllm", "", 'LMCACHE_LOCAL_CPU: "False"', ""),
        ("vllm", "", 'VLLM_CPU_KVCACHE_SPACE: "4"', ""),
        ("sglang", "--cpu-offload-gb 0 --enable-memory-saver", "", ""),
        ("llamacpp", "--no-mmap --cpu-moe --cache-ram 4096", "", ""),
    ],
)
def test_a_second_copy_in_host_memory_is_refused(engine, words, env, name) -> None:
    findings = refusals(recipe(engine, words, env=env))
    assert [item.severity for item in findings] == (["error"] if name else [])
    assert all(name in item.message for item in findings)


@pytest.mark.parametrize(("size", "wrong"), [("16gb", False), ("64g", True), (2**36, True)])
def test_more_shared_memory_than_engines_use_is_somebody_s_plan(size: object, wrong: bool) -> None:
    findings = refusals(recipe("vllm", extra=f"executor_config: {{shm_size: {size}}}\n"))
    assert bool(findings) is wrong
    assert not wrong or "executor_config.shm_size" in findings[0].message


def needs(candidate: Recipe) -> float:
    weights = Figure("weights", 20 * 2**30 / 1e9, "GB", "a test", "2026-11-22", "quoted")
    model = KnownCheckpoint(candidate.model, weights_gb=weights)
    return fit(candidate, replace(KNOWN.knowledge, checkpoints={model.id: model})).needs_gib


def test_what_llama_cpp_keeps_of_earlier_prompts_is_counted_before_the_memory_watch_ends_it():
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
    return fit(recipe("llamacpp", words), knowledge).sequence_gib * 2**20


def test_llama_cpp_keeps_a_step_beside_each_window_or_all_if_told_so() -> None:
    assert sequence_kib("") == 1024 + 512
    assert sequence_kib("-ub 256") == 1024 + 256
    assert sequence_kib("--swa-full") == 8192


EAGLE = "mistral-small-4-119b-nvfp4-sglang-eagle"
FORK = "mistral-small-4-119b-nvfp4-vllm-fork"
QWEN = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
START = 2.7
# What a mixture on vLLM takes beyond its share once it serves.
BEYOND = 0.9


def need(name: str, **settings: object) -> Need:
    return answer(name, **settings).need


@pytest.mark.parametrize(("label", "share"), [("0.65", 0.65), ("0.72, ours", 0.72), ("0.75", 0.75)])
def test_the_table_of_shares_in_the_documentation_is_what_the_code_says(label, share) -> None:
    prediction = answer(EAGLE, utilization=share)
    row = f"| {label} | {prediction.loads_gib:.1f} GiB | {prediction.needs_gib:.1f} GiB | "
    document = (Path(__file__).parents[3] / "docs" / "fit.md").read_text()
    assert f"{row}{prediction.host_use_gib:.1f} GiB |" in document
    assert serving(KNOWN.recipes[EAGLE]).utilization == 0.72


def test_vllm_needs_its_share_of_the_hosts_own_memory_and_the_minimum() -> None:
    beside = START + BEYOND
    # Half of the 119.56 - 5.7 - 1.2 GiB at rest less what it holds there.
    memory_need = need(FORK)
    minimum_gib = memory_need.minimum_gib
    assert minimum_gib == pytest.approx(6.71, abs=0.005)
    for total in (121.69, 119.6):
        assert memory_need.available(total) == pytest.approx(0.8 * total + beside + minimum_gib)
    assert need(FORK, utilization=0.5).available(121.69) == pytest.approx(0.5 * 121.69 + beside + 8)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_an_engine_with_a_share_of_what_it_finds_leaves_the_minimum(share: float) -> None:
    least = Need(10.0, share, beside_gib=START, minimum_gib=8.0).available(121.69)
    assert least - START - share * (least - START) == pytest.approx(8)
    # One that takes all starts nowhere.
    assert Need(10.0, 1.0, beside_gib=START, minimum_gib=8.0).available(121.69) > 121.69


def test_a_published_figure_stays_with_the_share_and_the_machine_that_it_is_of() -> None:
    beside = START + BEYOND + 8
    assert need(QWEN).available(121.69) == 67 + 8
    assert need(QWEN, utilization=0.6).available(121.69) == pytest.approx(0.6 * 121.69 + beside)
    prediction = fit(KNOWN.recipes[QWEN], KNOWN.knowledge, machine="dgx-spark-64")
    assert prediction.needs_gib == pytest.approx(0.5 * 59.78 + beside)


def test_a_kv_cache_in_bytes_does_not_free_vllm_from_its_share() -> None:
    """`request_memory` looks at the share before `kv_cache_memory_bytes` is read (0.17 to 0.32)."""
    peak_gib = need("deepseek-v4-flash-2x").serving_peak_gib(121.69)
    assert peak_gib == pytest.approx(0.8 * 121.69 + START + BEYOND)
    # SGLang takes nothing beside its share.
    assert need(EAGLE).serving_peak_gib(121.69) == pytest.approx(0.72 * 121.69 + START)
    # It replaces the room that the share leaves.
    prediction = answer("deepseek-v4-flash-2x")
    assert prediction.room_gib == (12.0, 12.0)
    assert prediction.host_use_gib == pytest.approx(5.7 + 155.44 / 2 + 5.4 + 12, abs=0.1)
    little = need("deepseek-v4-flash-2x", utilization=0.3)
    assert little.gib == pytest.approx(START + 155.44 / 2 + 12 + 5.4, abs=0.1)
    assert little.available(121.69) == little.gib + little.minimum_gib


def test_a_recipe_without_a_share_is_believed_where_it_states_what_it_holds() -> None:
    assert Need(2.45).available(121.69) == Need(2.45).serving_peak_gib(121.69) == 2.45
    qwen = KNOWN.recipes[QWEN]
    command = qwen.command.replace("--gpu-memory-utilization {gpu_memory_utilization}", "")
    qwen = replace(qwen, command=command)
    assert fit(qwen, KNOWN.knowledge).need == Need(67.0, minimum_gib=8.0)
    qwen = replace(qwen, lockstep=replace(qwen.lockstep, memory=None))
    # vLLM's own default.
    peak_gib = fit(qwen, KNOWN.knowledge).need.serving_peak_gib(100)
    assert peak_gib == pytest.approx(92 + START + BEYOND)


def test_unknown_weights_on_sglang_need_the_share_of_a_spark_at_rest() -> None:
    available_gib = need("qwen3.8-27b-nvfp4-sglang-dflash2").available(121.69)
    assert available_gib == pytest.approx(0.5 * (121.69 - 5.7 - START) + START, abs=0.005)
