"""The word `sense`: its timer, and where its finding is told."""

import pytest
from a_hot_spark import UNIT, HotSpark

from lockstep.onhost.core import config, layout, switch_lock
from lockstep.onhost.engine import sense_check
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.records import json_records, watch_findings
from lockstep.onhost.switching import hot_change_under_way, sense_check_of_hot_model

SOUND = sense_check.SenseVerdict((sense_check.SenseCheck("echo", "sound", ""),))
WRONG = sense_check.SenseVerdict(
    (sense_check.SenseCheck("echo", "nonsense", "expected a, came b"),)
)


class Spark(HotSpark):
    """A host with a hot model, and looks whose outcome is given."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        super().__init__(tmp_path, monkeypatch, sense="answers")
        self.count(running=0)
        self.looks = [SOUND]
        self.sense_requests: list[config.Model] = []
        monkeypatch.setattr(sense_check, "judge_engine_sense", self.look)
        monkeypatch.setattr(layout, "Paths", lambda: self.paths)

    def look(self, model: config.Model, key: str | None):
        self.sense_requests.append(model)
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def run(self, *words: str) -> int:
        return sense_check_of_hot_model.main(list(words), self.paths)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch)
    yield spark
    spark.close()


def test_nonsense_is_said_and_without_a_hot_model_nothing_can_be_asked(spark, capsys):
    spark.looks = [WRONG]
    assert spark.run() == 1
    assert "qwen talks nonsense: echo: expected a, came b" in capsys.readouterr().out
    spark.systemd.unit(UNIT)
    assert (spark.run(), spark.run("--rest"), len(spark.sense_requests)) == (2, 0, 1)


def test_a_look_that_was_cut_short_by_a_stop_is_forgotten(spark, monkeypatch):
    def stop_look(model, key):
        spark.systemd.unit(UNIT)
        return WRONG

    monkeypatch.setattr(sense_check, "judge_engine_sense", stop_look)
    spark.run("--rest")
    assert watch_findings.load(spark.paths).senses == {}


def test_the_engine_itself_is_asked_by_hand_also_where_sense_is_off(spark):
    spark.tell("qwen", url="http://127.0.0.1:9", engine_url=spark.engine.url, sense="off")
    assert spark.run() == 0
    assert [model.url for model in spark.sense_requests] == [spark.engine.url]


def test_the_timer_asks_a_resting_engine_once_a_day(spark, monkeypatch):
    assert [spark.run("--rest"), spark.run("--rest")] == [0, 0]
    assert len(spark.sense_requests) == 1
    # Another process is another model.
    spark.runs(pid=8)
    spark.run("--rest")
    assert len(spark.sense_requests) == 2
    monkeypatch.setattr(sense_check_of_hot_model, "_AGAIN_S", 0.0)
    spark.run("--rest")
    assert len(spark.sense_requests) == 3


RESTARTED = hot_change_under_way.HotChange(
    rollout=hot_change_under_way.HotWork("qwen", "the deploy")
)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda spark: spark.count(running=1),
        lambda spark: setattr(spark.engine, "metrics", None),
        lambda spark: spark.tell("qwen", sense="off"),
        lambda spark: spark.tell("qwen", url="", engine_url=None),
        lambda spark: json_records.save(spark.paths.hot_change, RESTARTED),
    ],
    ids=["busy", "without counters", "off", "another rank answers", "a deploy restarts it"],
)
def test_the_timer_leaves_an_engine_and_a_switch_alone(spark, disturb):
    with switch_lock.hold_lock(spark.paths.switch_lock, "you", "qwen"):
        assert spark.run("--rest") == 0
    disturb(spark)
    assert (spark.run("--rest"), spark.sense_requests) == (0, [])


def sense_findings() -> list[tuple[str, str, str]]:
    return list(deploy_records.sense_findings(None))


def test_the_timer_restarts_nothing_and_its_finding_is_told(spark):
    spark.looks = [WRONG]
    assert (spark.run("--rest"), spark.systemd.calls) == (0, [])
    # An engine is not accused for one answer.
    assert len(spark.sense_requests) == 2
    assert "talks nonsense: echo: expected a, came b; asked" in spark.status_text()
    assert sense_findings() == [("sense", "qwen", "talks nonsense: echo: expected a, came b")]
    # Of a process that is gone nothing is told.
    spark.runs(pid=8)
    assert "nonsense" not in spark.status_text() and sense_findings() == []
    # One wrong look of two is no finding.
    spark.looks = [WRONG, SOUND]
    spark.run("--rest")
    assert "makes sense: echo; asked" in spark.status_text()
    assert sense_findings() == [("sense", "qwen", "no nonsense")]
