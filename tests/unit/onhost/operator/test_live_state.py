"""The facts of the page: what each part says, what it costs, and what hangs holds nobody up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from a_clock import Clock
from a_model import about
from a_model_host import UP
from onhost_fakes import REPOSITORY, FakeEngine, FakeSystemd, host_root

from lockstep.onhost.core import config, switch_lock
from lockstep.onhost.operator import live_state
from lockstep.onhost.records import last_diff, switch_history
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.system import gpu_sensors

UNIT = "vllm-qwen36.service"
METRICS = """\
vllm:num_requests_running{{model_name="q"}} {running}
vllm:num_requests_waiting{{model_name="q"}} 1
vllm:generation_tokens_total{{model_name="q"}} {tokens}
vllm:prompt_tokens_total{{model_name="q"}} 10
"""


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host where qwen is hot on an engine that counts; no GPU, no Docker."""

    class Spark:
        def __init__(self) -> None:
            self.engine = FakeEngine()
            url = self.engine.url
            qwen = about(engine="vllm", url=url, engine_url=url, container="vllm-qwen36")
            self.paths = host_root(tmp_path / "root", {"qwen": qwen}, 41.2)
            self.systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
            self.systemd.unit(UNIT, **UP, StateChangeTimestamp="@1790000000")
            self.count(0, 0)
            self.clock = Clock(monkeypatch)
            # Only bounds a hang; a busy machine takes longer for the engine's counters.
            monkeypatch.setattr(live_state, "_PATIENCE_S", 180.0)
            self.gpu_reading = gpu_sensors.GpuReading(
                power_w=41.0, clock_mhz=2080, temperature_c=61, reasons=0x20
            )
            monkeypatch.setattr(gpu_sensors, "read_gpu", lambda: self.gpu_reading)
            self.facts = live_state.Facts(config.load_host(self.paths.models), self.paths)

        def count(self, running: int, tokens: int) -> None:
            self.engine.metrics = METRICS.format(running=running, tokens=tokens)

        def later(self, seconds: float = 2.0) -> dict:
            self.clock.time += seconds
            return self.facts.facts_now()

    spark = Spark()
    yield spark
    spark.engine.close()


def test_what_is_hot_and_since_when_without_asking_the_engine_for_a_token(spark):
    facts_now = spark.facts.facts_now()
    assert (facts_now["host"], facts_now["hot"]) == ("spark1", "qwen")
    assert facts_now["models"]["qwen"]["since"] == 1790000000.0
    assert facts_now["memory_gib"]["available"] == 41.2
    assert facts_now["gpu"] == {
        "power_w": 41.0,
        "clock_mhz": 2080,
        "temperature_c": 61,
        "utilization": None,
        "held_down_by": ["thermal slow-down by the driver"],
    }
    json.dumps(facts_now)
    assert spark.engine.requests == []


def test_the_rate_is_that_of_the_tokens_between_two_looks_and_an_old_one_says_nothing(spark):
    assert spark.facts.facts_now()["engine"] == {"tok_s": None, "requests": 1}
    spark.count(2, 100)
    assert spark.later(2.0)["engine"] == {"tok_s": 50.0, "requests": 3}
    assert spark.later(4.0)["engine"] == {"tok_s": 0.0, "requests": 3}
    spark.count(2, 1000)
    assert spark.later(60.0)["engine"] == {"tok_s": None, "requests": 3}


def test_counters_of_another_process_are_not_compared(spark):
    spark.count(0, 5000)
    spark.facts.facts_now()
    spark.systemd.unit(UNIT, **UP, StateChangeTimestamp="@1790000500")
    spark.count(1, 10)
    assert spark.later()["engine"]["tok_s"] is None


def test_within_a_second_everybody_gets_the_same_look(spark):
    first = spark.facts.facts_now()
    spark.count(7, 7)
    assert spark.later(0.9) is first
    assert spark.later(0.2)["engine"]["requests"] == 8


def test_an_engine_that_does_not_answer_or_is_not_hot_is_no_error(spark):
    spark.systemd.unit(UNIT)
    facts_now = spark.facts.facts_now()
    assert (facts_now["hot"], facts_now["engine"]) == (None, None)
    spark.systemd.unit(UNIT, **UP)
    spark.engine.close()
    facts_now = spark.later()
    assert (facts_now["hot"], facts_now["engine"]) == ("qwen", None)


def test_a_driver_that_hangs_or_is_not_there_holds_nobody_up(spark, monkeypatch):
    monkeypatch.setattr(live_state, "_PATIENCE_S", 0.05)
    let_go = threading.Event()
    monkeypatch.setattr(gpu_sensors, "read_gpu", lambda: let_go.wait(180) and spark.gpu_reading)
    facts_now = spark.facts.facts_now()
    assert (facts_now["gpu"], facts_now["hot"]) == (None, "qwen")
    assert spark.later()["gpu"] is None
    spark.gpu_reading = gpu_sensors.GpuReading()
    let_go.set()
    monkeypatch.setattr(live_state, "_PATIENCE_S", 180.0)
    assert spark.later()["gpu"] is None


def test_a_running_switch_shows_its_person_and_last_words(spark):
    log = switch_commands.log_file(spark.paths)
    log.parent.mkdir(parents=True)
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna, by the gateway", "qwen"):
        log.write_text("starting qwen\nlockstep load: loading weights, file 6 of 13\n")
        facts_now = spark.facts.facts_now()
        assert facts_now["switching"]["user"] == "anna, by the gateway"
        assert facts_now["phase"] == "loading weights, file 6 of 13"
        # Of an earlier switch: this one has its words on another member of its cluster.
        os.utime(log, (1, 1))
        assert spark.later()["phase"] is None
    assert spark.later()["switching"] is None


def test_the_last_switches_and_the_last_diff(spark):
    switch_history.switch_and_record(spark.paths, "anna", "qwen", lambda say: 0)
    last_diff.answer_request({"differences": [], "more": 0, "unknown": []}, spark.paths)
    facts_now = spark.facts.facts_now()
    (switch,) = facts_now["switches"]
    assert switch["person"] == "anna"
    assert facts_now["models"]["qwen"]["usual_s"] == switch["took_s"]
    assert facts_now["diff"]["differences"] == []


def test_the_disk_is_the_one_of_the_weights(spark, tmp_path):
    assert spark.facts.facts_now()["disk"] is None
    spark.paths.weights_list.write_text(json.dumps({"cache_dir": f"{tmp_path}/models/hub"}))
    disk = spark.later()["disk"]
    assert disk["path"] == f"{tmp_path}/models/hub"
    assert 0 < disk["free_gib"] <= disk["total_gib"]


def test_follow_prints_a_line_each_second_until_nobody_reads(spark):
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from pathlib import Path\n"
        "from lockstep.onhost.core import layout\n"
        "from lockstep.onhost.operator import live_state, switch_sh\n"
        "live_state.FRESH_S = 0.05\n"
        f"paths = layout.Paths(Path({str(spark.paths.root)!r}))\n"
        "sys.exit(switch_sh.main(['status', '--follow'], paths))\n"
    )
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        lines = [json.loads(follower.stdout.readline()) for _ in range(2)]
        follower.stdout.close()
        assert follower.wait(180) == 0
    assert [line["hot"] for line in lines] == ["qwen", "qwen"]
    assert lines[0]["at"] <= lines[1]["at"]
