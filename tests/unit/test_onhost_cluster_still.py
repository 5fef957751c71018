"""A rank that is frozen while its group starts is found; one that loads or waits is not."""

from __future__ import annotations

import pytest
from a_cluster import GLM, cluster_of, until
from onhost_fakes import cluster_still, common

Process, Stillness = cluster_still.Process, cluster_still.Stillness


def process(state: str = "S", ran: int = 5, pid: int = 7):
    return Process(pid, "VLLM::Worker", state, ran)


def judged(looks: list[list], every_s: float = 10.0) -> list[str]:
    """What is said at each look, `every_s` seconds apart."""
    clock = iter(range(0, 10_000))
    found = iter(looks)
    stillness = Stillness(lambda: next(found), 30.0, 60.0, lambda: next(clock) * every_s)
    return [stillness.why() for _ in looks]


def test_a_process_that_stays_stopped_is_named_after_the_bound():
    said = judged([[process(), process("T", 9, 8)] for _ in range(5)])
    assert said == ["", "", "", said[3], said[4]]
    assert said[3] == "VLLM::Worker (process 8) is stopped by a signal for 30 s"


def test_who_is_let_go_in_between_is_not_stopped():
    states = ["T", "T", "S", "T", "T", "T"]
    assert not any(judged([[process(state, ran)] for ran, state in enumerate(states)]))


def test_a_debugger_is_not_a_signal():
    assert not any(judged([[process("t", ran)] for ran in range(9)]))


def test_no_processor_time_in_any_process_is_frozen_after_the_bound():
    said = judged([[process(), process(pid=8)] for _ in range(9)])
    assert said[:6] == 6 * [""]
    assert said[6] == "none of its 2 processes had any processor time for 60 s"


def test_one_process_that_polls_keeps_the_rank():
    assert not any(judged([[process(), process(ran=ran, pid=8)] for ran in range(30)]))


def test_an_engine_that_cannot_be_seen_is_no_sign_of_anything():
    assert not any(judged(30 * [[]]))


def alive(spark, pid: int, state: str, *ran: int, unit: str = GLM, terminal: int = 0) -> None:
    """A process with so many threads in a unit's control group."""
    folder = spark.paths.proc / str(pid)
    for thread, value in enumerate(ran, pid):
        (folder / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
        (folder / "task" / str(thread) / "schedstat").write_text(f"{value} 1 1\n")
    (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    (folder / "stat").write_text(f"{pid} (a (b) c) {state} 1 2 3 {terminal} -1\n")


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members; nothing is hot."""
    sparks = cluster_of(tmp_path, monkeypatch, 2)
    yield sparks
    for spark in sparks:
        spark.end()


def test_an_engine_is_its_units_processes_without_the_check_of_its_readiness(pair):
    spark = pair[1]  # whose systemd this process sees
    alive(spark, 70, "S", 3, 4)
    alive(spark, 71, "S", 9)
    alive(spark, 72, "S", 9, unit="vllm-own.service")
    # Somebody who looks into the container, and has stopped what they do there.
    alive(spark, 73, "T", 9, terminal=34817)
    spark.systemd.unit(GLM, ControlPID="71")
    target = common.load_host(spark.paths.targets).target("glm")
    assert cluster_still.engine(target, spark.paths) == [Process(70, "a (b) c", "S", 7)]


def test_a_kernel_without_accounting_tells_nothing(pair):
    alive(pair[0], 70, "S", 3)
    (pair[0].paths.proc / "70/task/70/schedstat").unlink()
    target = common.load_host(pair[0].paths.targets).target("glm")
    assert cluster_still.engine(target, pair[0].paths) == []


@pytest.mark.parametrize(("rank", "state"), [(0, "T"), (1, "T"), (1, "S")])
def test_a_rank_that_is_frozen_while_the_group_starts_ends_the_start(pair, rank, state):
    pair[0].systemd.unit(GLM, on_start=["sleep", "60"])
    pair[1].change("glm", fallback=None)
    pair[0].change("glm", fallback=None)
    alive(pair[rank], 70, state, 3)
    code, lines = pair[0].switch("glm")
    assert code == 4, lines
    assert [spark.hot() for spark in pair] == [[], []]
    why = "is stopped by a signal" if state == "T" else "had any processor time"
    assert any(f"glm FAILED on spark{rank + 1}: {GLM}" in line and why in line for line in lines)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_frozen_while_it_is_hot_ends_the_group(pair, rank):
    assert pair[0].switch("glm")[0] == 0
    alive(pair[rank], 70, "T", 3)
    until(lambda: pair[0].group.state == "recovering", "the group is ended")
    assert f"spark{rank + 1} is frozen: a (b) c (process 70) is stopped" in pair[0].group.reason
    (pair[rank].paths.proc / "70/stat").write_text("70 (a) S 1 2 3 0 -1\n")
    until(lambda: [spark.hot() for spark in pair] == [["glm"], ["glm"]], "whole again")


def test_a_rank_that_rests_while_it_is_hot_is_left_alone(pair):
    assert pair[0].switch("glm")[0] == 0
    alive(pair[1], 70, "S", 3)
    before = pair[0].group.run
    looked = pair[0].group.heard
    # Longer than a start may be quiet here.
    until(lambda: pair[0].group.heard > looked + 4, "tokens came for a while")
    assert (pair[0].group.run, pair[0].group.state) == (before, "hot")
