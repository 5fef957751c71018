"""The wedge watch: a hot engine that generates nothing is restarted, twice an hour at most."""

import pytest
from a_clock import Clock
from a_hot_spark import UNIT, HotSpark
from a_model import NOWHERE
from onhost_fakes import FakeEngine

from lockstep.onhost.core import config, layout, switch_lock
from lockstep.onhost.engine import sense_check
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.records import json_records, watch_findings
from lockstep.onhost.switching import hot_change_under_way, sense_check_of_hot_model, wedge_watch

TOKEN = 200, FakeEngine.answer("x", 1)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host whose hot engine has two requests and no way to generate; time stands still."""

    class Spark(HotSpark):
        tokens, running = 5.0, 1.0

        def count_tokens(self, new_tokens: int = 0) -> None:
            self.tokens += new_tokens
            self.count(self.running, self.tokens, waiting=1.0)

        def look(self, sleep_s: float = 60.0) -> list[str]:
            """Let the watch look once; returns its calls of systemd."""
            self.clock.sleep(sleep_s)
            earlier_count = len(self.systemd.calls)
            host = config.load_host(self.paths.models)
            wedge_watch.WedgeWatch(host, self.paths, 30.0).check_hot_model()
            return self.systemd.calls[earlier_count:]

    spark = Spark(tmp_path, monkeypatch)
    spark.clock = Clock(monkeypatch)
    spark.engine.chat = lambda _: (503, {"error": "busy"})
    spark.count_tokens()
    yield spark
    spark.close()


RESTART = [f"systemctl reset-failed -- {UNIT}", f"systemctl restart --no-block -- {UNIT}"]


@pytest.mark.parametrize(("running", "outstanding"), [(1.0, 2), (-1.0, 0)])
def test_an_engine_without_a_token_is_restarted_at_the_second_look(spark, running, outstanding):
    """Also one that counts no request: vLLM's counters freeze with its engine process, so one that
    froze at rest looks idle."""
    spark.running = running
    spark.count_tokens()
    assert spark.look() == []
    assert spark.look() == RESTART
    reason = watch_findings.load(spark.paths).wedge.deeds[-1].reason
    assert reason.endswith(f'{{"error": "busy"}}); requests outstanding: {outstanding}')
    assert "the wedge watch restarted it: no token in 5 s (HTTP 503 " in spark.status_text()


def test_an_engine_without_metrics_or_whose_port_is_dead_is_restarted_at_once(spark):
    spark.engine.metrics = None
    assert spark.look() == RESTART
    spark.engine.close()
    assert spark.look() == RESTART


def test_a_counter_that_moves_is_life_whatever_a_token_would_say(spark):
    spark.look()
    for _ in range(9):
        spark.count_tokens(1)
        assert spark.look() == []
    assert spark.engine.requests == []


def give_up(spark) -> None:
    """The watch's own question ends so: it would take a dead engine for a living one."""
    spark.engine.metrics += 'vllm:request_success_total{engine="0",finished_reason="abort"} 1.0\n'


@pytest.mark.parametrize(
    ("change", "reply", "expected_calls"),
    [
        (lambda _: None, TOKEN, []),
        (lambda _: None, (401, {"error": "Unauthorized"}), []),
        (lambda spark: spark.count_tokens(1), (503, {}), []),
        (lambda spark: spark.runs(pid=99), (503, {}), []),
        (give_up, (503, {}), RESTART),
    ],
    ids=["a token", "a refusal", "a long prompt", "somebody restarts it", "only given up"],
)
def test_what_comes_while_it_is_asked_for_a_token_decides(spark, change, reply, expected_calls):
    spark.look()
    spark.engine.chat = lambda _: change(spark) or reply
    assert spark.look() == expected_calls
    assert spark.engine.requests[-1]["max_tokens"] == 1


def test_what_its_own_question_moves_is_noted_before_and_no_sign_of_life_at_the_next_look(spark):
    """Others count the engine's requests, too."""
    question_times = []

    def answer(_: dict) -> tuple[int, object]:
        question_times.append(watch_findings.load(spark.paths).wedge.asked_at)
        spark.count_tokens(1)
        return TOKEN

    spark.engine.chat = answer
    assert [spark.look() for _ in range(4)] == [[], [], [], []]
    assert len(question_times) == 3 and question_times[-1] == spark.clock.time
    spark.engine.chat = lambda _: (503, {})
    assert spark.look() == RESTART


def test_an_engine_is_asked_itself_while_the_gateway_before_it_is_down(spark):
    own = {"engine_url": spark.engine.url, "url": NOWHERE}
    spark.tell("qwen", **own, api_key_file="/nobody/reads")
    spark.engine.chat = lambda _: TOKEN
    assert [spark.look(), spark.look()] == [[], []]
    assert len(spark.engine.requests) == 1


def test_after_two_restarts_in_an_hour_it_is_left_down_and_an_hour_later_it_is_restarted(spark):
    """A new process has its own counters."""
    for pid in (7, 8):
        spark.runs(pid)
        assert [spark.look(), spark.look()] == [[], RESTART]
    spark.runs(9)
    assert [spark.look(), spark.look()] == [[], [f"systemctl stop -- {UNIT}"]]
    assert spark.systemd.state(UNIT)["ActiveState"] == "inactive"
    assert "left it down: no token in 5 s" in spark.status_text()
    assert spark.look() == []
    spark.runs(10)
    assert [spark.look(3600.0), spark.look()] == [[], RESTART]


def test_nothing_is_done_during_a_switch_when_nothing_is_hot_and_to_a_rank_of_a_cluster(spark):
    """The agents end all ranks together."""
    spark.look()
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        assert spark.look() == []
    for active in ("activating", "failed", "inactive"):
        spark.systemd.unit(UNIT, ActiveState=active, MainPID="7")
        assert spark.look() == []
    spark.runs(pid=7)
    spark.join_cluster("qwen")
    assert [spark.look(), spark.look()] == [[], []]
    assert spark.engine.requests == []


SOUND = sense_check.SenseVerdict((sense_check.SenseCheck("echo", "sound", ""),))
WRONG = sense_check.SenseVerdict(
    (sense_check.SenseCheck("echo", "nonsense", "expected a, came b"),)
)


class AskedSpark(HotSpark):
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
def host(tmp_path, monkeypatch):
    spark = AskedSpark(tmp_path, monkeypatch)
    yield spark
    spark.close()


def test_nonsense_is_said_and_without_a_hot_model_nothing_can_be_asked(host, capsys):
    host.looks = [WRONG]
    assert host.run() == 1
    assert "qwen talks nonsense: echo: expected a, came b" in capsys.readouterr().out
    host.systemd.unit(UNIT)
    assert (host.run(), host.run("--rest"), len(host.sense_requests)) == (2, 0, 1)


def test_a_look_that_was_cut_short_by_a_stop_is_forgotten(host, monkeypatch):
    def stop_look(model, key):
        host.systemd.unit(UNIT)
        return WRONG

    monkeypatch.setattr(sense_check, "judge_engine_sense", stop_look)
    host.run("--rest")
    assert watch_findings.load(host.paths).senses == {}


def test_the_engine_itself_is_asked_by_hand_also_where_sense_is_off(host):
    host.tell("qwen", url="http://127.0.0.1:9", engine_url=host.engine.url, sense="off")
    assert host.run() == 0
    assert [model.url for model in host.sense_requests] == [host.engine.url]


def test_the_timer_asks_a_resting_engine_once_a_day(host, monkeypatch):
    assert [host.run("--rest"), host.run("--rest")] == [0, 0]
    assert len(host.sense_requests) == 1
    # Another process is another model.
    host.runs(pid=8)
    host.run("--rest")
    assert len(host.sense_requests) == 2
    monkeypatch.setattr(sense_check_of_hot_model, "_AGAIN_S", 0.0)
    host.run("--rest")
    assert len(host.sense_requests) == 3


RESTARTED = hot_change_under_way.HotChange(
    rollout=hot_change_under_way.HotWork("qwen", "the deploy")
)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda host: host.count(running=1),
        lambda host: setattr(host.engine, "metrics", None),
        lambda host: host.tell("qwen", sense="off"),
        lambda host: host.tell("qwen", url="", engine_url=None),
        lambda host: json_records.save(host.paths.hot_change, RESTARTED),
    ],
    ids=["busy", "without counters", "off", "another rank answers", "a deploy restarts it"],
)
def test_the_timer_leaves_an_engine_and_a_switch_alone(host, disturb):
    with switch_lock.hold_lock(host.paths.switch_lock, "you", "qwen"):
        assert host.run("--rest") == 0
    disturb(host)
    assert (host.run("--rest"), host.sense_requests) == (0, [])


def sense_findings() -> list[tuple[str, str, str]]:
    return list(deploy_records.sense_findings(None))


def test_the_timer_restarts_nothing_and_its_finding_is_told(host):
    host.looks = [WRONG]
    assert (host.run("--rest"), host.systemd.calls) == (0, [])
    # An engine is not accused for one answer.
    assert len(host.sense_requests) == 2
    assert "talks nonsense: echo: expected a, came b; asked" in host.status_text()
    assert sense_findings() == [("sense", "qwen", "talks nonsense: echo: expected a, came b")]
    # Of a process that is gone nothing is told.
    host.runs(pid=8)
    assert "nonsense" not in host.status_text() and sense_findings() == []
    # One wrong look of two is no finding.
    host.looks = [WRONG, SOUND]
    host.run("--rest")
    assert "makes sense: echo; asked" in host.status_text()
    assert sense_findings() == [("sense", "qwen", "no nonsense")]
