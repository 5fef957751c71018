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


def snapshot(name: str = "spark1") -> dict[str, Any]:
    return {
        "rows": rows(PLAN, PLAN.name, UNITS, ENGINES, AVAILABLE, {}),
        "ssh": f"ssh spark@{name}",
        "switch": "/data/scripts/llm/switch.sh",
    }


GOOD = HostOutcome("spark1", snapshot=snapshot())

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
    assert render([GOOD]) == GOLDEN


def test_nothing_is_said_about_a_host_before_anything_is_known() -> None:
    assert render([HostOutcome("spark1")]) == ""


def test_a_wiped_host_is_said_to_have_nothing() -> None:
    assert rows(PLAN, PLAN.name, {}, {"check": None}, AVAILABLE, {}) == [
        (
            "qwen",
            "missing, vllm-qwen36 at 127.0.0.1:30001, qwen3.6-35b-a3b-autoround-dflash-k3-vision",
        ),
        (
            "mistral",
            "missing, sglang-mistral4 at 127.0.0.1:30000, mistral-small-4-119b-nvfp4-sglang-eagle",
        ),
        ("mistral-vllm", "missing, vllm at 127.0.0.1:8000, mistral-small-4-119b-nvfp4-vllm-fork"),
        ("gateway", "missing, http://127.0.0.1:8090"),
        ("open-webui", "missing, 127.0.0.1:8080"),
        ("hot now", "none"),
        ("models at boot", "none"),
        ("memory available", "31.2 GiB"),
    ]


def test_accounts_that_were_taken_over_are_said_for_no_new_password_is_theirs() -> None:
    plan = spark(adopt=("volume open-webui",))
    assert table(plan=plan)["open-webui"] == ("active, 127.0.0.1:8080, with the accounts of before")


def test_an_engine_that_could_not_be_asked_is_in_the_table_with_the_reason() -> None:
    reason = "SGLang 0.5.23 cannot be imported: no libcuda.so.1"
    summary_rows = table(unasked_engines={"mistral": reason, "mistral-fallback": reason})
    assert summary_rows["engine not asked"] == (
        f"mistral, mistral-fallback: the start will tell; {reason}"
    )
    assert "engine not asked" not in table()


def test_what_is_hot_is_named_a_fallback_too() -> None:
    fallback = "sglang-mistral4-fallback.service"
    for state, hot in (("active", "mistral-fallback"), ("activating", "none")):
        units = {**UNITS, "vllm-qwen36.service": {}, fallback: {"ActiveState": state}}
        assert table(units)["hot now"] == hot


def test_words_that_are_too_long_for_the_table_are_folded() -> None:
    outcome = HostOutcome("spark1", snapshot=snapshot())
    outcome.snapshot["rows"] = [(30 * "n", 70 * "s"), ("hot now", "a b")]
    assert render([outcome]).splitlines()[2:6] == [
        f" {24 * 'n'}  {52 * 's'}",
        f" {6 * 'n'}{20 * ' '}{18 * 's'}",
        f" hot now{17 * ' '}  a b",
        "",
    ]


def test_a_boot_link_is_reported_even_of_a_fallback() -> None:
    linked_unit = {"ActiveState": "inactive", "links": ["/etc/systemd/system/x.wants/y"]}
    units = {**UNITS, "sglang-mistral4-fallback.service": linked_unit, "vllm.service": linked_unit}
    assert table(units)["models at boot"] == "sglang-mistral4-fallback.service, vllm.service"


FAILED = HostOutcome(
    "spark2",
    failed_at="vLLM | Build the engine's environment: vLLM",
    reason="uv pip ended with 1\nerror: no space left on device",
)


def test_failed_hosts_come_last_with_the_operation_and_its_own_words() -> None:
    text = render([FAILED, GOOD])
    assert text.startswith(render([GOOD]))
    assert text.removeprefix(render([GOOD])) == (
        "\n\n"
        "FAILED  spark2: vLLM | Build the engine's environment: vLLM\n"
        "        uv pip ended with 1\n"
        "        error: no space left on device\n"
        "Done on: spark1\n"
        "Run the same command again: it goes on where this run ended."
    )


def test_a_host_that_failed_is_not_among_those_that_are_done() -> None:
    late = HostOutcome("spark1", failed_at="Verify | x", snapshot=snapshot())
    assert "Done on" not in render([late])


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
    text = render(
        [
            *(HostOutcome(host, snapshot=snapshot(host)) for host in hosts),
            HostOutcome(name, failed_at="Base | " + "Install many packages " * 5, reason=reason),
        ]
    )
    assert max(len(line) for line in text.splitlines()) <= 80
    for host in hosts:
        assert text.count(host) >= 3
    assert text.count("many") == 5


def test_after_a_failure_it_says_which_host_has_which_generation_and_what_ends_that() -> None:
    hosts = [
        HostOutcome("spark1", snapshot=snapshot(), generation="new"),
        HostOutcome("spark2", "Services", "it does not start", generation="old"),
        HostOutcome("spark3", "Services", hold_reason="qwen runs on", generation="old"),
    ]
    text = render(hosts, again="pyinfra site.py deploy.py")
    assert text.endswith(
        "\n"
        "The hosts differ now. The new generation is on: spark1. It is not, or not whole,\n"
        "  on: spark2, spark3.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra site.py deploy.py"
    )
    for generation in ("new", "old", ""):
        for host in hosts:
            host.generation = generation
        text = render(hosts, again="pyinfra site.py deploy.py")
        assert "differ" not in text
        assert text.endswith("Run the same command again: it goes on where this run ended.")


def test_hosts_that_returned_because_another_failed_are_named_and_have_no_table() -> None:
    hosts = [
        HostOutcome("spark1", "all", snapshot=snapshot(), has_returned=True, generation="old"),
        HostOutcome("spark2", "all", has_returned=True, generation="old"),
        HostOutcome("spark3", "Gateway", generation="old"),
    ]
    assert render(hosts, again="pyinfra site.py deploy.py") == (
        "\nFAILED  spark3: Gateway\n"
        "Returned, because not all came through: spark1, spark2\n"
        "Run the same command again: it goes on where this run ended."
    )


def test_a_host_that_failed_and_rolled_back_is_said_to_be_as_before() -> None:
    hosts = [
        HostOutcome("spark1", "Gateway", generation="old", is_rolled_back=True),
        HostOutcome("spark2", "Gateway", reason="it could not return", is_rolled_back=False),
    ]
    assert render(hosts, again="pyinfra site.py deploy.py") == (
        "\nFAILED  spark1: Gateway\n"
        "FAILED  spark2: Gateway\n"
        "        it could not return\n"
        "As before this run: spark1\n"
        "Run the same command again."
    )


def test_what_people_must_know_is_said_once_at_the_end_also_of_a_run_that_failed() -> None:
    news = ["A new authority was made."]
    hosts = [
        HostOutcome("spark1", snapshot=snapshot(), news=news),
        HostOutcome("spark2", failed_at="Verify | x", news=news),
    ]
    text = render(hosts)
    assert text.count("\nNote: A new authority was made.\n") == 1
    assert text.index("Note: ") < text.index("FAILED")
