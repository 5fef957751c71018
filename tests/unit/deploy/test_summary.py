"""The last lines of a run: what runs where, and which host failed at what, in 80 columns."""

from __future__ import annotations

from typing import Any

from a_spark import spark

from lockstep.deploy.summary import HostOutcome, render, rows
from lockstep.inventory.host import HostPlan

PLAN = spark("spark1")
UNITS: dict[str, Any] = {
    "vllm-qwen36.service": {"ActiveState": "active", "links": []},
    "sglang-mistral4.service": {"ActiveState": "inactive", "links": []},
    "sglang-mistral4-fallback.service": {"ActiveState": "inactive", "links": []},
    "vllm.service": {"ActiveState": "failed", "links": []},
    "lockstep-gateway.service": {"ActiveState": "active", "links": []},
    "open-webui.service": {"ActiveState": "active", "links": []},
}
ENGINES: dict[str, Any] = {
    "check": {"version": "0.19.2rc1.dev7", "torch": "2.10.0+cu130", "cuda": "13.0"}
}
AVAILABLE = int(31.25 * 2**30)


def table(units: Any = UNITS, unasked_engines: Any = (), plan: HostPlan = PLAN) -> dict[str, str]:
    return dict(rows(plan, plan.name, units, ENGINES, AVAILABLE, dict(unasked_engines)))


def good(name: str = "spark1", **more: Any) -> HostOutcome:
    snapshot = {
        "rows": rows(PLAN, PLAN.name, UNITS, ENGINES, AVAILABLE, {}),
        "ssh": f"ssh spark@{name}",
        "switch": "/data/scripts/llm/switch.sh",
    }
    return HostOutcome(name, snapshot=snapshot, **more)


GOLDEN = """\

spark1
 venv engine       vLLM 0.19.2rc1.dev7, torch 2.10.0+cu130, CUDA 13.0
 qwen              active, vllm-qwen36 at 127.0.0.1:30001,
                   qwen3.6-35b-a3b-autoround-dflash-k3-vision
 mistral           inactive, sglang-mistral4 at 127.0.0.1:30000,
                   mistral-small-4-119b-nvfp4-sglang-eagle
 mistral-vllm      failed, vllm at 127.0.0.1:8000,
                   mistral-small-4-119b-nvfp4-vllm-fork
 gateway           active, http://127.0.0.1:8090
 open-webui        active, 127.0.0.1:8080
 hot now           qwen
 models at boot    none
 memory available  31.2 GiB

Next: ssh spark@spark1 /data/scripts/llm/switch.sh status"""


def test_what_runs_on_a_host() -> None:
    assert render([good()]) == GOLDEN
    # Nothing is said about a host before anything is known.
    assert render([HostOutcome("spark1")]) == ""


def test_a_wiped_host_has_nothing_and_an_unasked_engine_a_reason() -> None:
    summary_rows = dict(rows(PLAN, PLAN.name, {}, {"check": None}, AVAILABLE, {}))
    assert "venv engine" not in summary_rows
    parts = [value.partition(",")[0] for value in summary_rows.values()]
    assert parts == [*5 * ["missing"], "none", "none", "31.2 GiB"]
    reason = "SGLang 0.5.23 cannot be imported: no libcuda.so.1"
    summary_rows = table(unasked_engines={"mistral": reason, "mistral-fallback": reason})
    text = f"mistral, mistral-fallback: the start will tell; {reason}"
    assert summary_rows["engine not asked"] == text
    assert "engine not asked" not in table()


def test_what_is_hot_or_starts_at_boot_is_named_a_fallback_too() -> None:
    fallback = "sglang-mistral4-fallback.service"
    for state, hot in (("active", "mistral-fallback"), ("activating", "none")):
        units = {**UNITS, "vllm-qwen36.service": {}, fallback: {"ActiveState": state}}
        assert table(units)["hot now"] == hot
    linked_unit = {"ActiveState": "inactive", "links": ["/etc/systemd/system/x.wants/y"]}
    units = {**UNITS, fallback: linked_unit, "vllm.service": linked_unit}
    assert table(units)["models at boot"] == f"{fallback}, vllm.service"
    # Accounts that were taken over are said, for no new password is theirs.
    plan = spark(adopt=("volume open-webui",))
    assert table(plan=plan)["open-webui"] == ("active, 127.0.0.1:8080, with the accounts of before")


def test_failed_hosts_come_last_with_the_operation_and_its_own_words() -> None:
    failed_at = "vLLM | Build the engine's environment: vLLM"
    reason = "uv pip ended with 1\nerror: no space left on device"
    news = ["A new authority was made."]
    hosts = [HostOutcome("spark2", failed_at, reason, news=news), good(news=news)]
    assert render(hosts) == (
        f"{GOLDEN}\n\n"
        "Note: A new authority was made.\n\n"
        "FAILED  spark2: vLLM | Build the engine's environment: vLLM\n"
        "        uv pip ended with 1\n"
        "        error: no space left on device\n"
        "Done on: spark1\n"
        "Run the same command again: it goes on where this run ended."
    )
    assert "Done on" not in render([good(failed_at="Verify | x")])


def test_a_model_of_several_hosts_is_named_once_apart_from_those_of_one() -> None:
    hosts = [
        HostOutcome(name, restarts=restarts, together={"glm": ["spark1", "spark2"]})
        for name, restarts in (("spark1", []), ("spark2", []), ("spark3", ["vllm.service"]))
    ]
    assert render(hosts) == (
        "\nHot models that would be restarted, each host once the one before it serves:\n"
        "1. spark3: vllm.service\n"
        "\nHot models of clusters that would go down on all members, and up again when all\n"
        "  are done:\n"
        "- glm: spark1, spark2"
    )


def test_no_line_is_wider_than_80_columns_and_nothing_is_cut() -> None:
    name = "a-spark-with-a-very-long-name.in-a-very-long-domain.example.com"
    hosts = [f"{name}-{number}" for number in range(3)]
    reason = "the FlashInfer packages do not agree: " + ", ".join(hosts)
    failure = HostOutcome(name, failed_at="Base | " + "Install many packages " * 5, reason=reason)
    text = render([*map(good, hosts), failure])
    assert max(len(line) for line in text.splitlines()) <= 80
    for host in hosts:
        assert text.count(host) >= 3
    assert text.count("many") == 5


AGAIN = "pyinfra site.py deploy.py"


def test_after_a_failure_it_says_which_host_has_which_generation_and_what_ends_that() -> None:
    hosts = [
        good("spark1", generation="new"),
        HostOutcome("spark2", "Services", "it does not start", generation="old"),
        HostOutcome("spark3", "Services", hold_reason="qwen runs on", generation="old"),
    ]
    assert render(hosts, again=AGAIN).endswith(
        "\n"
        "The hosts differ now. The new generation is on: spark1. It is not, or not whole,\n"
        "  on: spark2, spark3.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra site.py deploy.py"
    )
    for generation in ("new", "old", ""):
        for host in hosts:
            host.generation = generation
        text = render(hosts, again=AGAIN)
        assert "differ" not in text
        assert text.endswith("Run the same command again: it goes on where this run ended.")


def test_hosts_that_returned_or_rolled_back_are_named_and_have_no_table() -> None:
    hosts = [
        good("spark1", failed_at="all", has_returned=True, generation="old"),
        HostOutcome("spark2", "all", has_returned=True, generation="old"),
        HostOutcome("spark3", "Gateway", generation="old"),
    ]
    assert render(hosts, again=AGAIN) == (
        "\nFAILED  spark3: Gateway\n"
        "Returned, because not all came through: spark1, spark2\n"
        "Run the same command again: it goes on where this run ended."
    )
    hosts = [
        HostOutcome("spark1", "Gateway", generation="old", is_rolled_back=True),
        HostOutcome("spark2", "Gateway", reason="it could not return", is_rolled_back=False),
    ]
    assert render(hosts, again=AGAIN) == (
        "\nFAILED  spark1: Gateway\n"
        "FAILED  spark2: Gateway\n"
        "        it could not return\n"
        "As before this run: spark1\n"
        "Run the same command again."
    )
