"""No half of a cluster stays up: whatever happens to a rank, its engine or its host."""

import json
import time
from dataclasses import asdict

import pytest
from a_cluster import GLM, OWN, SPARE, cluster_of
from lab_servers import LIMIT_S, until
from onhost_fakes import FakeEngine

from lockstep.onhost.cluster import lone_rank_refusal, run_records
from lockstep.onhost.core import clock, errors, layout, switch_lock
from lockstep.onhost.records import watch_findings
from lockstep.units.agent_unit import RECORDS


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members on which the cluster is hot."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        code, lines = sparks[0].switch("glm")
        assert code == 0, lines
        yield sparks


def hot(pair) -> list[list[str]]:
    return [spark.hot for spark in pair]


def wait_for_new_run(pair, run: str) -> None:
    """Wait until the cluster is hot in another run than this one."""
    until(lambda: pair[0].cluster_run.run != run, "another run")
    until(lambda: pair[0].cluster_run.state == "hot", "hot again")


def wait_until_left_down(pair, seconds: float = LIMIT_S) -> str:
    """The reason for which no member has the cluster any more."""
    until(lambda: pair[0].cluster_run.state == "down", "left down", seconds)
    # The other one is told: by itself it would believe in the cluster for the lease.
    until(lambda: all(spark.hot in ([], ["own"]) for spark in pair), "stopped on both", 10)
    return pair[0].cluster_run.reason


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_rank_that_ends_takes_the_group_down_and_up_again(pair, rank, state):
    run = pair[0].cluster_run.run
    pair[rank].systemd.unit(GLM, ActiveState=state)
    wait_for_new_run(pair, run)
    assert hot(pair) == [["glm"], ["glm"]]
    assert f"spark{rank + 1}" in pair[0].cluster_run.reason
    assert len(pair[0].cluster_run.starts) == 1
    # Whole: the rank that lived was stopped too.
    peer_calls = pair[1 - rank].systemd.calls
    assert f"systemctl stop -- {GLM}" in peer_calls
    assert peer_calls.count(f"systemctl start -- {GLM}") == 2


def test_a_group_that_does_not_stay_is_left_down_with_the_reason(pair):
    for spark in pair:
        spark.systemd.unit(SPARE, start_ok=False)
    for _ in range(3):
        run = pair[0].cluster_run.run
        pair[1].systemd.unit(GLM, ActiveState="inactive")
        wait_for_new_run(pair, run)
    pair[0].systemd.unit(GLM, ActiveState="inactive")
    assert "3 starts in 30 min did not help" in wait_until_left_down(pair)


def end_by_memory_watch(spark, when: float) -> None:
    kill = watch_findings.MemoryKill("glm", GLM, "serving", 4.0, 3.8, when)
    watch_findings.save(spark.paths, kill)
    spark.systemd.unit(GLM, ActiveState="failed", SubState="failed")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["goes on", "is restarted"])
def test_a_rank_that_the_memory_watch_ended_leaves_the_group_down(pair, rank, is_restarted):
    if is_restarted:
        pair[rank].kill_agent()
    end_by_memory_watch(pair[rank], time.time())
    if is_restarted:
        pair[rank].power_on()
    assert "the memory watch ended it while serving: 3.8 GiB" in wait_until_left_down(pair)
    assert not pair[0].cluster_run.starts


def test_what_the_memory_watch_ended_before_this_run_says_nothing_of_it(pair):
    run = pair[0].cluster_run.run
    end_by_memory_watch(pair[1], pair[1].cluster_run.since - 1.0)
    wait_for_new_run(pair, run)
    assert "memory watch" not in pair[0].cluster_run.reason


def test_a_start_that_fails_counts(pair):
    for spark in pair:
        for unit in (GLM, SPARE):
            spark.systemd.unit(unit, start_ok=False)
    wait_until_left_down(pair)
    assert len(pair[0].cluster_run.starts) == 3


def test_an_engine_that_generates_nothing_ends_the_group(pair):
    """A frozen rank: every unit is up and /health is green."""
    pair[0].engine.chat = lambda _: (200, FakeEngine.answer("", 0))
    for unit in (GLM, SPARE):
        pair[1].systemd.unit(unit, start_ok=False, ActiveState="active", SubState="running")
    message = "rank 0 on spark1 generates nothing"
    until(lambda: message in pair[0].cluster_run.reason, "seen")
    until(lambda: hot(pair) == [[], []], "ended on both")


def test_a_member_without_power_ends_the_group_and_it_waits_for_its_return(pair):
    run = pair[0].cluster_run.run
    pair[1].power_off()
    until(lambda: pair[0].hot == [], "ended on the first")
    # As long as a Spark needs to boot.
    clock.sleep(120)
    assert "spark2 was not heard for" in pair[0].cluster_run.reason
    assert pair[0].cluster_run.state == "recovering"
    pair[1].power_on()
    wait_for_new_run(pair, run)
    assert hot(pair) == [["glm"], ["glm"]]


def test_a_member_that_does_not_return_leaves_the_group_down(pair):
    pair[1].power_off()
    message = "; after 10 min: spark2 (127.0.1.2:7079) does not answer"
    assert message in wait_until_left_down(pair, 700)


def test_a_member_that_does_not_hear_rank_0_stops_by_itself(pair):
    pair[0].freeze()
    until(lambda: pair[1].hot == [], "stopped")
    assert pair[1].cluster_run.state == "ended"
    assert "spark1, rank 0, was not heard for" in pair[1].cluster_run.reason
    pair[0].thaw()
    until(lambda: hot(pair) == [["glm"], ["glm"]], "hot again")
    assert pair[1].cluster_run.run == pair[0].cluster_run.run


def test_why_a_group_ended_outlives_a_boot_and_it_stays_down(pair):
    pair[1].power_off()
    until(lambda: pair[0].cluster_run.state == "recovering", "recovering")
    why = pair[0].cluster_run.reason
    pair[0].power_off()
    pair[1].power_on()
    pair[0].power_on()
    assert (pair[0].cluster_run.state, hot(pair)) == ("down", [[], []])
    assert [spark.cluster_run.reason for spark in pair] == [
        f"{why}; then spark1 was rebooted or lost its power",
        "spark2 was rebooted or lost its power",
    ]


@pytest.mark.parametrize("is_soon_back", [True, False])
def test_rank_0_that_was_rebooted_starts_nothing_and_the_others_learn_why(pair, is_soon_back):
    pair[0].power_off()
    if not is_soon_back:
        until(lambda: pair[1].cluster_run.state == "ended", "ended")
        assert "rank 0, was not heard" in pair[1].cluster_run.reason
    pair[0].power_on()
    until(lambda: pair[1].cluster_run.state == "down", "left down")
    for spark in pair:
        assert (spark.hot, spark.cluster_run.state) == ([], "down")
        assert spark.cluster_run.reason == "spark1 was rebooted or lost its power"


def test_an_agent_that_is_restarted_keeps_the_group_also_from_an_earlier_versions_record(pair):
    run = pair[0].cluster_run
    for spark in pair:
        spark.kill_agent()
    pair[0].paths.clusters.write_text(json.dumps({"pair": asdict(run)}))
    for spark in pair:
        spark.power_on()
    until(lambda: pair[0].cluster_run.members == {"spark1": "hot", "spark2": "hot"}, "heard")
    assert hot(pair) == [["glm"], ["glm"]]
    assert [spark.cluster_run.run for spark in pair] == [run.run, run.run]
    assert [spark.systemd.calls.count(f"systemctl start -- {GLM}") for spark in pair] == [1, 1]


def test_a_disk_that_is_full_costs_the_memory_of_a_boot_only(tmp_path, capsys):
    paths = layout.Paths(tmp_path)
    paths.clusters_on_disk.mkdir(parents=True)
    run_records.save(paths, run_records.ClusterRun("pair", "glm", "run"))
    assert run_records.recorded_runs(paths)["pair"].model == "glm"
    assert "a boot will forget how it stands" in capsys.readouterr().out


def test_a_deploy_removes_both_records():
    records = (layout.Paths().clusters, layout.Paths().clusters_on_disk)
    assert [str(path) for path in records] == list(RECORDS)


def test_none_while_the_group_waits_to_be_started_is_final(pair):
    pair[1].power_off()
    until(lambda: pair[0].cluster_run.state == "recovering", "recovering")
    code, lines = pair[0].switch("none")
    assert (code, pair[0].cluster_run.state) == (0, "stopped"), lines
    assert any("it stops its rank by itself" in line for line in lines)


def test_none_on_a_member_that_rank_0_did_not_hear_is_not_undone_by_rank_0(pair):
    pair[0].freeze()
    code, lines = pair[1].switch("none")
    assert code == 0, lines
    pair[0].thaw()
    assert "spark2: alice switched to none on spark2" in wait_until_left_down(pair)


def test_a_member_that_chose_another_model_meanwhile_keeps_it(pair):
    pair[1].systemd.unit(GLM)
    pair[1].systemd.unit(OWN, ActiveState="active", SubState="running")
    assert "spark2 has own hot now" in wait_until_left_down(pair)
    assert hot(pair) == [[], ["own"]]


def test_who_is_switching_is_left_alone_and_a_rank_without_its_group_is_stopped(pair):
    with switch_lock.hold_lock(pair[0].paths.switch_lock, "ben", "own"):
        pair[1].systemd.unit(GLM, ActiveState="inactive")
        until(lambda: "left to who is switching" in pair[0].log.getvalue(), "seen")
        assert pair[0].hot == ["glm"]
    assert pair[0].switch("none")[0] == 0
    pair[0].systemd.unit(GLM, ActiveState="active", SubState="running")
    until(lambda: pair[0].hot == [], "stopped")
    assert f"{GLM} is up without its cluster: stopping it" in pair[0].log.getvalue()


def test_a_rank_alone_is_refused_with_the_remedy_unless_its_group_starts(pair, capsys):
    with pytest.raises(errors.Problem, match=r"never here alone\. Remedy: switch.sh glm"):
        lone_rank_refusal.main(["admit", "glm"], pair[1].paths)
    assert lone_rank_refusal.main(["admit", "own"], pair[1].paths) == 0
    assert lone_rank_refusal.main(["admit"]) == 2
    assert "cluster admit MODEL" in capsys.readouterr().err
    pair[1].systemd.unit(GLM, on_start=5)
    until(lambda: pair[1].state() == "activating", "it starts")
    assert lone_rank_refusal.main(["admit", "glm"], pair[1].paths) == 0
