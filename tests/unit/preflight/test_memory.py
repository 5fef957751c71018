"""Preflight: memory that is short is told before the download, with the value that would do."""

from typing import Any

from a_spark import GIB, findings, spark

from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan, checkpoints_of

PLAN = spark()


def memory_findings(available: float, plan: HostPlan = PLAN, **facts: Any) -> list[Finding]:
    memory = {"MemTotal": int(121.69 * GIB), "MemAvailable": int(available * GIB)}
    every = findings(plan, memory=memory, **facts)
    return [item for item in every if item.code == "memory-available"]


def words(findings: list[Finding]) -> list[str]:
    return [item.message.split(" needs ")[0] for item in findings]


def test_the_default_models_start_on_every_kit_that_was_reported():
    # As a Spark is before its first deploy, with the kernel's own value.
    assert memory_findings(110, min_free_kib=45158) == []
    # What an engine found at its start on the poorer kit, if it were MemAvailable: what is not
    # promised there is a model that may be chosen, and not the default.
    assert words(memory_findings(101.3)) == ["mistral-vllm"]


def test_what_our_own_sysctl_will_take_is_counted_before_it_is_set_and_only_then() -> None:
    assert memory_findings(108.5) == []
    [vllm] = memory_findings(108.5, min_free_kib=45158)
    assert "107.1 GiB are (less 1.4 GiB that vm.min_free_kbytes of the inventory" in vllm.message
    assert memory_findings(108.5, spark(sysctls={}), min_free_kib=45158) == []


def test_a_spark_of_64_gb_is_judged_by_its_own_figures():
    plan = spark(expected={"memory_gib": 58})
    memory = {"MemTotal": int(60.85 * GIB), "MemAvailable": int(53.5 * GIB)}
    every = findings(plan, memory=memory)
    assert not [item for item in every if item.code == "memory"]
    short = [item for item in every if item.code == "memory-available"]
    # The fallback's share of it is there, and its weights do not fit: the plan's to say.
    assert words(short) == ["mistral", "mistral-vllm"]
    assert all("bind a smaller recipe" in item.remedy for item in short)


def test_a_spark_of_64_gb_that_nobody_expects_hears_what_to_say() -> None:
    remedies = {61: '`expected = {"memory_gib": 58}`', 100: "Is something else holding memory"}
    for gib, remedy in remedies.items():
        every = findings(memory={"MemTotal": gib * GIB, "MemAvailable": 54 * GIB})
        [memory] = [item for item in every if item.code == "memory"]
        assert remedy in memory.remedy


def test_a_host_with_90_gib_hears_the_number_and_what_to_set_before_the_download() -> None:
    short = memory_findings(90)
    assert words(short) == ["mistral", "mistral-fallback", "mistral-vllm"]
    mistral, spare, vllm = short
    # Of another engine, whose share is of something else.
    assert "Set `models.mistral.fallback_overrides` to " in spare.remedy
    assert (mistral.severity, mistral.subject) == ("error", "spark1")
    assert mistral.message.startswith("mistral needs 95.9 GiB available to start, and 90.0 GiB are")
    assert "must hold 66.3 GiB of weights and the KV cache of 32768 tokens" in mistral.message
    setting = 'Set `models.mistral.overrides` to {"gpu_memory_utilization": 0.77} ('
    assert mistral.remedy.startswith(setting) and "or free 5.9 GiB" in mistral.remedy
    assert "vLLM asks for 0.8 of 121.7 GiB at its start, and 6.71 GiB must" in vllm.message


def test_where_no_share_is_enough_that_is_said_with_who_holds_the_gpus_memory() -> None:
    holder = "ollama.service (Ollama) holds 40.0 GiB on the GPU: `ollama ps`"
    [mistral] = [item for item in memory_findings(60) if item.message.startswith("mistral needs")]
    assert mistral.remedy.startswith("Free 35.9 GiB") and "On the GPU" not in mistral.remedy
    for item in memory_findings(60, gpu_held=[holder]):
        assert item.remedy.endswith(f" On the GPU: {holder}.")


def test_weights_that_are_here_make_it_a_warning_and_a_host_that_serves_is_not_judged() -> None:
    checkpoints = {name: {64 * "e": 20 * GIB} for name in checkpoints_of(PLAN)}
    severities = {item.severity for item in memory_findings(90, checkpoints=checkpoints)}
    assert severities == {"warning"}
    assert memory_findings(20, units_up=["sglang-mistral4.service"]) == []
