"""The wedge watch: a hot engine that generates nothing is restarted, twice an hour at most."""

from __future__ import annotations

import json

import pytest
from a_clock import Clock
from a_hot_spark import UNIT, HotSpark
from local_server import refused_address
from onhost_fakes import FakeEngine

from lockstep.onhost.core import config, switch_lock
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import wedge_watch

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="q"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="q"}} 1.0
vllm:generation_tokens_total{{engine="0",model_name="q"}} {tokens}
vllm:generation_tokens_created{{engine="0",model_name="q"}} 1.7e+09
"""


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host whose hot engine has two requests and no way to generate; time stands still."""

    class Spark(HotSpark):
        def __init__(self) -> None:
            super().__init__(tmp_path, monkeypatch)
            self.tokens, self.running = 5.0, 1.0
            self.clock = Clock(monkeypatch)
            self.engine.chat = lambda _: (503, {"error": "busy"})

        def look(self, sleep_s: float = 60.0) -> list[str]:
            """Let the watch look once; returns its calls of systemd."""
            self.clock.sleep(sleep_s)
            text = METRICS.format(running=self.running, tokens=self.tokens)
            self.engine.metrics = text if self.engine.metrics is not None else None
            earlier_count = len(self.systemd.calls)
            host = config.load_host(self.paths.models)
            wedge_watch.WedgeWatch(host, self.paths, 30.0).check_hot_model()
            return self.systemd.calls[earlier_count:]

    spark = Spark()
    spark.engine.metrics = ""
    yield spark
    spark.close()


RESTART = [f"systemctl reset-failed -- {UNIT}", f"systemctl restart --no-block -- {UNIT}"]


def test_outstanding_requests_without_a_token_lead_to_a_restart_at_the_second_look(spark):
    assert spark.look() == []
    assert spark.look() == RESTART
    deed = watch_findings.load(spark.paths).wedge.deeds[-1]
    assert deed.reason == 'no token in 5 s (HTTP 503 {"error": "busy"}); requests outstanding: 2'


def test_a_counter_that_moves_is_life_whatever_a_token_would_say(spark):
    spark.look()
    for _ in range(9):
        spark.tokens += 1
        assert spark.look() == []
    assert spark.engine.requests == []


def busy_with(spark, tokens: float, more: str = "") -> tuple[int, dict]:
    """Answer nothing; meanwhile the counters are these."""
    spark.engine.metrics = METRICS.format(running=1.0, tokens=tokens) + more
    return 503, {}


def restart_engine(spark) -> tuple[int, dict]:
    spark.runs(pid=99)
    return 503, {}


ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort"} 1.0\n'


@pytest.mark.parametrize(
    ("engine_reply", "expected_calls"),
    [
        pytest.param(lambda _: (200, FakeEngine.answer("x", 1)), [], id="a token"),
        pytest.param(lambda _: (401, {"error": "Unauthorized"}), [], id="it refuses the question"),
        pytest.param(lambda spark: busy_with(spark, 6.0), [], id="a long prompt moves a counter"),
        pytest.param(restart_engine, [], id="somebody restarts it"),
        # The watch's own question ends so: it would take a dead engine for a living one.
        pytest.param(lambda spark: busy_with(spark, 5.0, ABORTED), RESTART, id="only given up"),
    ],
)
def test_what_comes_while_it_is_asked_for_a_token_decides(spark, engine_reply, expected_calls):
    spark.look()
    spark.engine.chat = lambda _: engine_reply(spark)
    assert spark.look() == expected_calls
    assert spark.engine.requests[-1]["max_tokens"] == 1


def test_before_it_asks_it_notes_so_for_who_counts_the_engines_requests(spark):
    question_times = []

    def answer(_: dict) -> tuple[int, object]:
        question_times.append(watch_findings.load(spark.paths).wedge.asked_at)
        return 200, FakeEngine.answer("x", 1)

    spark.engine.chat = answer
    spark.look()
    spark.look()
    assert question_times == [spark.clock.time]


def test_an_engine_is_asked_itself_while_the_gateway_before_it_is_down(spark):
    own = {"engine_url": spark.engine.url, "url": f"http://{refused_address()}"}
    spark.tell("qwen", **own, api_key_file="/nobody/reads")
    spark.engine.chat = lambda _: (200, FakeEngine.answer("x", 1))
    assert [spark.look(), spark.look()] == [[], []]
    assert len(spark.engine.requests) == 1


def test_a_model_that_makes_vectors_is_asked_for_these(spark):
    spark.tell("qwen", kind="embedding")
    spark.look()
    vectors = [{"index": index, "embedding": [0.5, index]} for index in (0, 1)]
    spark.engine.chat = lambda _: (200, {"data": vectors})
    assert spark.look() == []
    assert spark.engine.paths == ["/v1/embeddings"]
    spark.engine.chat = lambda _: (503, {})
    assert spark.look() == RESTART


def test_an_engine_that_counts_no_request_is_asked_too(spark):
    """vLLM's counters freeze with its engine process: one that froze at rest looks idle."""
    spark.running = -1.0
    spark.look()
    assert spark.look() == RESTART
    assert "requests outstanding: 0" in watch_findings.load(spark.paths).wedge.deeds[-1].reason


def test_what_its_own_question_moves_is_no_sign_of_life_at_the_next_look(spark):
    spark.running = -1.0

    def answer(_: dict) -> tuple[int, object]:
        spark.tokens += 1
        spark.engine.metrics = METRICS.format(running=spark.running, tokens=spark.tokens)
        return 200, FakeEngine.answer("x", 1)

    spark.engine.chat = answer
    assert [spark.look() for _ in range(4)] == [[], [], [], []]
    assert len(spark.engine.requests) == 3
    spark.engine.chat = lambda _: (503, {})
    assert spark.look() == RESTART


def test_an_engine_without_metrics_is_asked_at_every_look(spark):
    spark.engine.metrics = None
    assert spark.look() == RESTART


def test_an_engine_whose_port_is_dead_is_restarted_at_once(spark):
    spark.engine.close()
    assert spark.look() == RESTART


def test_after_two_restarts_in_an_hour_it_is_left_down_with_the_reason(spark):
    calls = []
    for pid in (7, 8, 9):
        spark.runs(pid)
        calls += [spark.look(), spark.look()]
    assert calls == [[], RESTART, [], RESTART, [], [f"systemctl stop -- {UNIT}"]]
    assert spark.systemd.state(UNIT)["ActiveState"] == "inactive"
    assert "left it down: no token in 5 s" in spark.status_text()
    assert spark.look() == []


def test_an_hour_later_it_may_be_restarted_again(spark):
    for pid, sleep_s in ((7, 60.0), (8, 60.0), (9, 3600.0)):
        spark.runs(pid)
        spark.look(sleep_s)
        assert spark.look() == RESTART


def test_status_tells_of_a_restart(spark):
    spark.look()
    spark.look()
    assert "the wedge watch restarted it" in spark.status_text()


def test_nothing_is_done_while_somebody_is_switching_or_when_nothing_is_hot(spark):
    spark.look()
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        assert spark.look() == []
    assert spark.engine.requests == []
    for active in ("activating", "failed", "inactive"):
        spark.systemd.unit(UNIT, ActiveState=active, MainPID="7")
        assert spark.look() == []


def test_a_new_process_has_its_own_counters(spark):
    spark.look()
    spark.runs(pid=8)
    assert spark.look() == []
    assert spark.look() == RESTART


def test_a_rank_of_a_cluster_is_left_to_the_agent_that_ends_all_of_them(spark):
    data = json.loads(spark.paths.models.read_text())
    data["models"]["qwen"]["cluster"] = "pair"
    members = [{"name": "spark1", "address": "10.0.0.1"}, {"name": "spark2", "address": "10.0.0.2"}]
    data["clusters"] = {"pair": {"name": "pair", "rank": 0, "port": 7079, "members": members}}
    spark.paths.models.write_text(json.dumps(data))
    spark.look()
    assert spark.look() == []
    assert spark.engine.requests == []
