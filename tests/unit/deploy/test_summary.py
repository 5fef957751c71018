"""The last lines of a run: what runs where, and which host failed at what, in 80 columns."""

from typing import Any

from a_spark import spark

from lockstep.deploy.closing import unexplained_end
from lockstep.deploy.course import Course
from lockstep.deploy.summary import HostOutcome, render, rows
from lockstep.inventory.host import HostPlan

PLAN = spark("spark1")
UNITS: dict[str, Any] = {
    f"{name}.service": {"ActiveState": state, "links": []}
    for name, state in {
        **{"vllm-qwen36": "active", "sglang-mistral4": "inactive", "vllm": "failed"},
        **{"lockstep-gateway": "active", "open-webui": "active"},
    }.items()
}
ENGINES = {"check": {"version": "0.19.2rc1.dev7", "torch": "2.10.0+cu130", "cuda": "13.0"}}
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
    assert summary_rows["gateway"].startswith("missing,")
    reason = "SGLang 0.5.23 cannot be imported: no libcuda.so.1"
    unasked_engines = {"mistral": reason, "mistral-fallback": reason}
    text = f"mistral, mistral-fallback: the start will tell; {reason}"
    assert table(unasked_engines=unasked_engines)["engine not asked"] == text


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
    news = ["A new authority was made."]
    reason = "uv pip ended with 1\nerror: no space left on device"
    hosts = [HostOutcome("spark2", "vLLM | Build", reason, news=news), good(news=news)]
    assert render(hosts) == (
        f"{GOLDEN}\n\n"
        "Note: A new authority was made.\n\n"
        "FAILED  spark2: vLLM | Build\n"
        "        uv pip ended with 1\n"
        "        error: no space left on device\n"
        "Done on: spark1\n"
        "Run the same command again: it goes on where this run ended."
    )
    assert "Done on" not in render([good(failed_at="Verify | x")])


def test_after_a_failure_it_says_which_host_has_which_generation_and_what_ends_that() -> None:
    failed_host = HostOutcome("spark2", "Services", "it does not start", generation="old")
    hosts = [good("spark1", generation="new"), failed_host]
    assert render(hosts, again="pyinfra site.py deploy.py").endswith(
        "The hosts differ now. The new generation is on: spark1. It is not, or not whole,\n"
        "  on: spark2.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra site.py deploy.py"
    )


def test_hosts_that_returned_or_rolled_back_are_named_and_have_no_table() -> None:
    hosts = [
        good("spark1", failed_at="all", has_returned=True, generation="old"),
        HostOutcome("spark2", "all", has_returned=True, generation="old"),
        HostOutcome("spark3", "Gateway", generation="old"),
    ]
    assert render(hosts) == (
        "\nFAILED  spark3: Gateway\n"
        "Returned, because not all came through: spark1, spark2\n"
        "Run the same command again: it goes on where this run ended."
    )
    hosts = [
        HostOutcome("spark1", "Gateway", generation="old", is_rolled_back=True),
        HostOutcome("spark2", "Gateway", reason="it could not return", is_rolled_back=False),
    ]
    assert render(hosts) == (
        "\nFAILED  spark1: Gateway\n"
        "FAILED  spark2: Gateway\n"
        "        it could not return\n"
        "As before this run: spark1\n"
        "Run the same command again."
    )


OFF = "[spark-1] Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.9)"


def test_hosts_that_are_not_reached_are_named_and_the_remedy() -> None:
    for line, remedy in (
        ("[spark-1.invalid] Could not resolve hostname: Name or service not known", "The host is"),
        (OFF, "The host is off, or its address is wrong."),
        ("[spark-1] Authentication error (no key)", "Remedy: log in to the host by `ssh`"),
        ("[spark-1] SSH host key error (Host key does not match)", "Remedy: log in to the host by"),
    ):
        lines = ["--> Connecting to hosts...", line, "--> pyinfra error: No hosts remaining!"]
        first, last = unexplained_end(Course(0.0), lines)
        assert first == line.replace("[Errno None] ", "")
        assert last.startswith(remedy)
    # An error of pyinfra's own is its sentence, without a traceback.
    lines = [
        "--> Connecting to hosts...",
        "Traceback (most recent call last):",
        'raise PyinfraError(f"No such private key file: {key_filename}")',
        "<Greenlet at 0x7f: <bound method Host.connect of Host(spark1)>> failed with PyinfraError",
        "--> pyinfra error in src/gevent/greenlet.py line 912: No such private key file: /x/key",
    ]
    assert list(unexplained_end(Course(0.0), lines)) == [
        "spark1: No such private key file: /x/key. Remedy: correct `ssh_key` in the inventory, or "
        "copy the key there."
    ]
