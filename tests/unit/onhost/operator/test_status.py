"""Status: the truth from systemd, Docker and the engine, readable on a phone."""

import json

import pytest
from a_model_host import UP, ModelHost
from onhost_fakes import put_in_container, timeless

from lockstep.onhost.core import config, switch_lock
from lockstep.onhost.engine import log_phases
from lockstep.onhost.operator import status, switch_sh
from lockstep.onhost.records import switch_history, watch_findings
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import units
from lockstep.onhost.systemd.outdated_units import GATEWAY, GATEWAY_SOCKET

QWEN_UNIT, MISTRAL_UNIT = "vllm-qwen36.service", "vllm.service"
NOW = 1_800_000_000.0
RECIPE = "qwen3.6-35b-a3b-prismaquant-4.75bit"
FAILED = {"ActiveState": "failed", "SubState": "failed"}


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host where qwen is hot, mistral off and Open WebUI up."""

    class Spark(ModelHost):
        def __init__(self) -> None:
            qwen = {"unit": QWEN_UNIT, "recipe": RECIPE, "container": "vllm-qwen36"}
            models = {"qwen": {**qwen, "engine": "vllm"}, "mistral": {"unit": MISTRAL_UNIT}}
            super().__init__(tmp_path, monkeypatch, models, available_gib=41.2)
            self.docker.containers["vllm-qwen36"] = "vllm/vllm-openai@sha256:aa"
            self.systemd.unit(QWEN_UNIT, **UP, StateChangeTimestamp=f"@{int(NOW) - 11100}")
            for name in (GATEWAY, GATEWAY_SOCKET, "open-webui.service"):
                self.systemd.unit(name, **UP)

        def status(self) -> status.Status:
            return status.query_status(config.load_host(self.paths.models), self.paths)

        def lines(self, columns: int = 40) -> list[str]:
            return status.status_lines(self.status(), columns, NOW)

    spark = Spark()
    yield spark
    spark.close()


def text_of(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)


def test_a_healthy_host(spark):
    lines = spark.lines()
    assert (lines[0], max(map(len, lines)) <= 40) == ("spark1: qwen hot", True)
    for words in (RECIPE, "ready a token in ", "mistral off, needs 67.0 GiB", "gateway active"):
        assert words in " ".join(" ".join(lines).split())
    document = status.status_document(spark.status())
    assert (document["hot"], document["problems"], document["switching"]) == ("qwen", [], None)
    assert document["memory_gib"] == {"total": 119.6, "available": 41.2, "free": 41.2}


def test_everything_that_breaks_a_rule_is_shown_with_its_remedy(spark):
    spark.systemd.unit(MISTRAL_UNIT, **UP, UnitFileState="enabled")
    spark.docker.containers["somebodys"] = "lmsysorg/sglang:latest"
    text = text_of(spark.lines())
    assert "BROKEN: 2 engines at once: vllm-qwen36.service, vllm.service." in text
    assert "BROKEN: vllm.service starts at boot. Remedy: sudo systemctl disable" in text
    assert "BROKEN: container somebodys (lmsysorg/sglang:latest) runs outside" in text
    spark.systemd.unit(QWEN_UNIT)
    assert "docker rm -f vllm-qwen36" in text_of(spark.lines())


def test_a_wedged_engine_is_green_but_not_ready(spark, monkeypatch):
    monkeypatch.setattr("lockstep.onhost.engine.hot_engine_check.TOKEN_TIMEOUT_S", 0.2)
    spark.engine.chat = lambda _: (503, {"error": "engine is dead"})
    lines = spark.lines(80)
    assert "  NOT READY" in lines
    assert "/health is green, but no token" in text_of(lines)


def test_a_loading_model_says_how_far_it_is(spark, capsys):
    line = "Loading safetensors checkpoint shards:  46% Completed | 6/13 [00:10<00:12]"
    spark.systemd.unit(QWEN_UNIT, ActiveState="activating", SubState="start-post", journal=[line])
    assert switch_sh.main(["status", "--json"], spark.paths) == 0
    detail = json.loads(capsys.readouterr().out)["models"]["qwen"]["detail"]
    assert detail == "loading weights, file 6 of 13"


def test_a_switch_is_shown_first_while_it_is_under_way_and_when_it_failed(spark):
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "mistral"):
        now = timeless(spark.lines(80)[1])
        assert now.startswith("NOW: anna is switching to mistral since 0 s")
    spark.systemd.unit(switch_commands.UNIT, **FAILED)
    log = switch_commands.log_file(spark.paths)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x\nlockstep failed: the switch to mistral FAILED\n")
    assert spark.lines(80)[1] == "last switch FAILED unknown: the switch to mistral FAILED"
    # One that was cut off, and finished.
    spark.systemd.unit(switch_commands.UNIT, **FAILED, Result="signal")
    record = switch_history.SwitchRecord(1.0, 2.0, "anna", "qwen", 0, "qwen is hot")
    switch_history.add_switch_record(spark.paths, record)
    assert spark.lines(100)[1].startswith("last switch unknown: cut off (signal), then: ")


def test_a_container_that_lives_is_told_where_docker_does_not_answer(spark):
    spark.docker.close()
    assert spark.lines(400)[-1].startswith("could not tell: containers: Docker does not answer")
    put_in_container(spark.paths, "vllm-qwen36", 4711)
    spark.systemd.unit(QWEN_UNIT)
    message = f"processes 4711 in container vllm-qwen36 outlived {QWEN_UNIT}. Remedy: switch.sh"
    assert spark.status().problems == [f"{message} none"]


AGAIN = {"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"}


@pytest.mark.parametrize(
    ("unit", "state", "message"),
    [
        (GATEWAY, AGAIN, "is down, and nobody is answered at its ports: restarting (exit-code"),
        (GATEWAY, {**AGAIN, "SubState": "start", "NRestarts": "7"}, ": loading after 7 starts"),
        (GATEWAY_SOCKET, {"ActiveState": "failed"}, "the gateway's ports are closed: "),
    ],
)
def test_a_gateway_that_is_down_is_said(spark, unit, state, message):
    spark.systemd.unit(unit, **state)
    [problem] = status.status_document(spark.status())["problems"]
    assert message in problem and f"journalctl -u {unit} says why" in problem


@pytest.mark.parametrize("state", [{"SubState": "auto-restart"}, {"NRestarts": "1"}], ids=str)
def test_an_open_webui_that_does_not_start_is_said_with_who_has_its_port(spark, monkeypatch, state):
    message = "python3 (process 7 of eve) listens at 127.0.0.1:8080, where Open WebUI is to answer"
    monkeypatch.setattr(units, "last_lines", lambda *_: [f"lockstep webui: {message}", "Stopped."])
    state = {"ActiveState": "activating", "SubState": "start-pre", **state}
    spark.systemd.unit("open-webui.service", Result="exit-code", **state)
    [problem] = spark.status().problems
    assert problem.startswith("Open WebUI is down: exit-code") and message in problem


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"active": "reloading"}, "hot"),
        ({"active": "activating", "sub": "start-pre"}, "loading"),
        ({"active": "activating", "sub": "auto-restart-queued"}, "restarting"),
        ({"active": "deactivating"}, "stopping"),
        ({"active": "inactive", "result": "exit-code"}, "failed"),
    ],
)
def test_systemds_states_in_the_operators_words(fields, state):
    assert units.Unit("x.service", **fields).state == state


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Capturing CUDA graphs (decode, FULL):  33%|###  | 2/6", "capturing CUDA graphs, 33 %"),
        ("INFO GPU KV cache size: 1,234,567 tokens", "KV cache for 1,234,567 tokens"),
        ("WARNING Enforce eager set, disabling torch.compile and CUDAGraphs. -cc.mode=none", None),
        ("lockstep ready: the engine died", "the engine died"),
    ],
)
def test_phases_are_recognised_in_engine_logs(line, phase):
    assert log_phases.announced_phase(line) == phase


# vLLM 0.26.0 on an H200: each of its starts warns of an error that might come.
WARNING = "(APIServer pid=1) WARNING 11-23 can cause errors like `OSError: [Errno 24]`"


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        (["ValueError: no", "lockstep ready: it died", "."], ["ValueError: no", "it died"]),
        (["a", "b"], ["a", "b"]),
        ([WARNING, "ValueError: no"], ["ValueError: no"]),
    ],
)
def test_the_reason_of_a_failure_is_the_errors_and_our_verdict(lines, reasons):
    assert log_phases.failure_lines(lines) == reasons


def test_an_engine_that_the_memory_watch_ended_is_told_until_it_is_up_again(spark):
    kill = watch_findings.MemoryKill("qwen", QWEN_UNIT, "serving", 4.0, 3.8, NOW - 60)
    watch_findings.save(spark.paths, kill)
    message = "the memory watch ended it while serving: 3.8 GiB available, below the minimum of"
    assert message not in text_of(spark.lines(200))
    spark.systemd.unit(QWEN_UNIT)
    assert message in text_of(spark.lines(200))
    assert message in status.status_document(spark.status())["models"]["qwen"]["memory_kill"]
