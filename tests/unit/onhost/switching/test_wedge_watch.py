"""The wedge watch: a hot engine that generates nothing is restarted, twice an hour at most."""

import pytest
from a_clock import Clock
from a_hot_spark import UNIT, HotSpark
from a_model import NOWHERE
from onhost_fakes import FakeEngine

from lockstep.onhost.core import config, switch_lock
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import wedge_watch

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
