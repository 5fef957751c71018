"""The facts of the page: what each part says, what it costs, and what hangs holds nobody up."""

import json
import os
import threading

import pytest
from a_clock import Clock
from a_hot_spark import UNIT, HotSpark
from a_model_host import UP

from lockstep.onhost.core import config, event_lines, switch_lock
from lockstep.onhost.operator import live_state, switch_sh
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.system import gpu_sensors


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host where qwen is hot on an engine that counts."""

    class Spark(HotSpark):
        def __init__(self) -> None:
            super().__init__(tmp_path, monkeypatch, engine="vllm")
            self.systemd.unit(UNIT, **UP, StateChangeTimestamp="@1790000000")
            self.count(0, 0, waiting=1)
            self.clock = Clock(monkeypatch)
            # Only bounds a hang; a busy machine takes longer for the engine's counters.
            monkeypatch.setattr(live_state, "_PATIENCE_S", 180.0)
            self.gpu_reading = gpu_sensors.GpuReading(power_w=41.0, reasons=0x20)
            monkeypatch.setattr(gpu_sensors, "read_gpu", lambda: self.gpu_reading)
            self.facts = live_state.Facts(config.load_host(self.paths.models), self.paths)

        def later(self, seconds: float = 2.0) -> dict:
            self.clock.time += seconds
            return self.facts.facts_now()

    spark = Spark()
    yield spark
    spark.close()


def test_what_is_hot_and_since_when_without_asking_the_engine_for_a_token(spark):
    facts_now = spark.facts.facts_now()
    assert (facts_now["host"], facts_now["hot"]) == ("spark1", "qwen")
    assert facts_now["models"]["qwen"]["since"] == 1790000000.0
    assert facts_now["gpu"]["power_w"] == 41.0
    assert facts_now["gpu"]["held_down_by"] == ["thermal slow-down by the driver"]
    assert spark.engine.requests == []


def test_the_rate_is_that_of_the_tokens_between_two_looks_and_an_old_one_says_nothing(spark):
    assert spark.facts.facts_now()["engine"] == {"tok_s": None, "requests": 1}
    spark.count(2, 100, waiting=1)
    assert spark.later(2.0)["engine"] == {"tok_s": 50.0, "requests": 3}
    assert spark.later(4.0)["engine"] == {"tok_s": 0.0, "requests": 3}
    spark.count(2, 1000, waiting=1)
    assert spark.later(60.0)["engine"] == {"tok_s": None, "requests": 3}


def test_within_a_second_everybody_gets_the_same_look(spark):
    first = spark.facts.facts_now()
    spark.count(7, 7, waiting=1)
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


def test_follow_prints_a_line_each_second_until_nobody_reads(spark, monkeypatch, capsys):
    answers = iter([False, False, True])
    monkeypatch.setattr(event_lines, "has_lost_reader", lambda: next(answers))
    assert switch_sh.main(["status", "--follow"], spark.paths) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["hot"] for line in lines] == ["qwen", "qwen"]
    assert spark.clock.elapsed_s == pytest.approx(2.0)
