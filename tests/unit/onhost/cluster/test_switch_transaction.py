"""A cluster is up on all of its Sparks or on none, in a switch and after it."""

import json
import time
from dataclasses import asdict

import pytest
from a_cluster import GLM, OWN, SPARE, cluster_of
from a_model_host import UP
from lab_servers import LIMIT_S, until
from onhost_fakes import FakeEngine

from lockstep.onhost.cluster import lone_rank_refusal, switch_transaction
from lockstep.onhost.cluster import run_records as cluster_runs
from lockstep.onhost.cluster import switch_participants as cluster_plan
from lockstep.onhost.core import clock, config, errors, layout, switch_lock
from lockstep.onhost.records import models_by_boot, switch_history, watch_findings
from lockstep.onhost.switching import hot_change_under_way, start_phase_printer
from lockstep.units.agent_unit import RECORDS


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members; `own` is hot on the second."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        sparks[1].systemd.unit(OWN, **UP)
        yield sparks


def hot_everywhere(pair) -> list[list[str]]:
    return [spark.hot for spark in pair]


def assert_nobody_switches(pair) -> None:
    for spark in pair:
        assert switch_lock.holder(spark.paths.switch_lock) is None
        assert cluster_runs.recorded_switch_part(spark.paths) is None


def one_rank_up(pair, seconds: int = 30):
    """A switch whose rank 0 loads for so long, and whose rank 1 is up."""
    pair[0].systemd.unit(GLM, on_start=seconds)
    work = pair[0].switch_begun("glm")
    until(lambda: pair[1].hot == ["glm"], "rank 1 is up")
    return work


def calls(spark) -> list[str]:
    return [call for call in spark.systemd.calls if not call.startswith("systemd-run")]


@pytest.mark.parametrize(
    ("restore", "hot", "message"),
    [
        (True, [[], ["own"]], "the switch to glm was cancelled; hot again: own on spark2"),
        # Another switch takes over.
        (False, [[], []], "the switch to glm was cancelled; no model is hot"),
    ],
)
def test_a_cancelled_switch_brings_back_what_members_had_if_it_is_to(pair, restore, hot, message):
    work = one_rank_up(pair, 600)
    hot_change_under_way.request_cancellation(pair[0].paths, "ben", restore=restore)
    out = work.output()
    assert work.returncode == errors.EXIT_CANCELLED, out
    assert (hot_everywhere(pair), out.splitlines()[-1]) == (hot, message)
    assert "ben cancelled the switch to glm" in out
    assert f"systemctl start -- {SPARE}" not in calls(pair[0])
    assert_nobody_switches(pair)


def test_a_start_that_systemd_does_not_know_of_yet_ends_too(pair, monkeypatch):
    enter = start_phase_printer.StartPhasePrinter.__enter__

    def late(tail: start_phase_printer.StartPhasePrinter) -> None:
        clock.sleep(5)
        enter(tail)

    monkeypatch.setattr(start_phase_printer.StartPhasePrinter, "__enter__", late)
    work = pair[0].switch_begun("glm")
    until(lambda: "starting glm" in pair[1].log.getvalue(), "it begins")
    hot_change_under_way.request_cancellation(pair[0].paths, "ben", restore=True)
    assert "hot again: own on spark2" in work.output()
    assert hot_everywhere(pair) == [[], ["own"]]


@pytest.mark.parametrize("asked_on", [0, 1])
def test_every_member_drops_its_model_starts_its_rank_and_stops_it_for_none(pair, asked_on):
    code, lines = pair[asked_on].switch("glm")
    assert (code, hot_everywhere(pair)) == (0, [["glm"], ["glm"]]), lines
    switch_calls = [f"stop -- {OWN}", f"reset-failed -- {GLM}", f"start -- {GLM}"]
    assert calls(pair[1]) == [f"systemctl {call}" for call in switch_calls]
    assert lines[-1] == "glm is hot on spark1, spark2" and "spark2: stopping own" in lines
    assert pair[0].cluster_run.run == pair[1].cluster_run.run
    assert_nobody_switches(pair)
    # What is hot already is asked for a token and left alone.
    code, lines = pair[1 - asked_on].switch("glm")
    assert code == 0 and lines[0].startswith("glm is hot already (")
    records = [switch_history.load(spark.paths)[0] for spark in pair]
    assert [record.hot_already for record in records] == [asked_on == 1, asked_on == 0]
    assert calls(pair[1])[-1] == f"systemctl start -- {GLM}"
    code, lines = pair[asked_on].switch("none")
    assert (code, hot_everywhere(pair)) == (0, [[], []])
    assert [spark.cluster_run.state for spark in pair] == ["stopped", "stopped"]


def test_a_rehearsal_tells_what_would_be_stopped_and_one_host_asks_nobody_for_itself(pair):
    code, lines = pair[0].switch("glm", "--dry")
    assert (code, lines[-2:]) == (0, ["spark1: no model up", "spark2: would stop own"])
    assert [calls(spark) for spark in pair] == [[], []]
    assert_nobody_switches(pair)
    pair[1].power_off()
    code, lines = pair[0].switch("own")
    assert (code, pair[0].hot) == (0, ["own"]), lines


def test_a_model_of_one_member_ends_the_group_on_all_and_each_keeps_how_a_switch_ended(pair):
    assert pair[1].switch("glm")[0] == 0
    pair[0].systemd.unit(OWN, start_ok=False)
    code, lines = pair[0].switch("own")
    assert (code, hot_everywhere(pair)) == (1, [["glm"], ["glm"]])
    assert lines[-1] == "the switch to own FAILED; hot again: glm on spark1, glm on spark2"
    # The latest first; on the host where it was asked for it is its operator's own.
    of_peer, (back, own) = [switch_history.load(spark.paths) for spark in pair]
    assert of_peer[-1].person == f"{own.person} on spark2"
    assert (of_peer[-1].model, of_peer[-1].code, of_peer[-1].words) == ("glm", 0, "glm is hot")
    assert (back.model, back.code, back.person) == ("own", 1, f"{of_peer[0].person} on spark1")
    # Of `boot: "last"`.
    assert [models_by_boot.load(spark.paths).hot for spark in pair] == ["glm", "glm"]
    code, lines = pair[1].switch("own")
    assert (code, hot_everywhere(pair)) == (0, [[], ["own"]]), lines


def test_none_stops_what_is_up_here_also_without_an_agent(pair):
    pair[1].kill_agent()
    code, lines = pair[1].switch("none")
    assert (code, pair[1].hot) == (0, []), lines


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda pair: pair[1].tell("glm", memory_gib=500.0), "spark2: glm needs 500.0 GiB"),
        (lambda pair: pair[1].power_off(), "spark2 (127.0.1.2:7079) does not answer"),
        (
            lambda pair: pair[1].tell("glm", alike="b"),
            "for glm: spark1 none, spark2 b. Remedy: deploy",
        ),
    ],
    ids=["no memory", "silent", "the launch check"],
)
def test_a_member_that_cannot_join_stops_the_switch_before_anything_is_stopped(pair, harm, message):
    harm(pair)
    code, lines = pair[0].switch("glm")
    assert code == 1
    assert message in lines[-1] and "nothing was stopped" in lines[-1]
    assert [calls(spark) for spark in pair] == [[], []]
    assert_nobody_switches(pair)


def test_a_member_that_is_switching_is_named_and_left_alone(pair):
    with switch_lock.hold_lock(pair[1].paths.switch_lock, "ben", "own"):
        code, lines = pair[0].switch("glm")
    assert (code, calls(pair[0])) == (75, [])
    assert "spark2: ben is switching to own" in lines[-1]
    one_rank_up(pair, 60)
    assert pair[1].switch("own")[0] == 75


def test_two_that_ask_on_two_members_at_once_are_both_served(pair):
    programs = [pair[0].switch_begun("glm"), pair[1].switch_begun("none")]
    outs = [work.output() for work in programs]
    # The second one may still find the first at work after its last attempt.
    assert sorted(work.returncode for work in programs) in ([0, 0], [0, 75]), outs
    assert hot_everywhere(pair) in ([["glm"], ["glm"]], [[], []])


@pytest.mark.parametrize(
    ("model", "hot", "state"),
    [
        ("none", [[], []], "stopped"),
        ("own", [[], ["own"]], "stopped"),
        # What somebody else made hot meanwhile is not started again.
        ("glm", [["glm"], ["glm"]], "hot"),
    ],
)
def test_a_group_that_starts_meanwhile_is_ended_as_a_whole(pair, monkeypatch, model, hot, state):
    """The second switch had seen no cluster yet, and would have ended a rank alone."""
    host, paths = config.load_host(pair[1].paths.models), pair[1].paths
    cluster_switch = switch_transaction.ClusterSwitch(host, paths, print, "ben")
    join, runs = cluster_switch._ask_all_to_join, []

    def join_after_the_others_switch(*words):
        if not runs:
            assert pair[0].switch("glm")[0] == 0
            runs.extend(spark.cluster_run.run for spark in pair)
        return join(*words)

    monkeypatch.setattr(cluster_switch, "_ask_all_to_join", join_after_the_others_switch)
    work = cluster_switch.stop_all_clusters
    code = pair[1].do(work if model == "none" else lambda: cluster_switch.switch_to(model))
    assert (code, hot_everywhere(pair)) == (0, hot)
    assert [spark.cluster_run.state for spark in pair] == [state, state]
    assert [spark.cluster_run.run for spark in pair] == runs
    assert cluster_switch.hot_already == (model == "glm")
    assert_nobody_switches(pair)


def test_a_group_that_starts_before_a_switch_has_its_lock_is_ended_as_a_whole(pair, monkeypatch):
    pair[0].switch("glm")
    concerns, questions = cluster_plan.concerns_other_members, []

    def not_yet(*words):
        questions.append(words)
        return len(questions) > 1 and concerns(*words)

    monkeypatch.setattr(cluster_plan, "concerns_other_members", not_yet)
    assert pair[1].switch("own")[0] == 0
    assert hot_everywhere(pair) == [[], ["own"]]


def test_only_who_switched_this_run_off_keeps_the_watch_from_starting_it_again(pair):
    planner = cluster_plan.Planner(config.load_host(pair[0].paths.models), None, "spark1", print)

    def states(**peer_state: str) -> dict:
        own_state = {"state": "recovering", "run": "r2", "reason": "a rank ended"}
        pairs = {"spark1": own_state, "spark2": peer_state}
        return {name: {"groups": {"pair": state}} for name, state in pairs.items()}

    planner.check_restart("glm", states(state="down", run="r2", reason="spark2 was rebooted"))
    planner.check_restart("glm", states(state="stopped", run="r1", reason="long ago"))
    with pytest.raises(errors.Problem, match="glm is not started again: it is over"):
        planner.check_restart("glm", {})
    off_states = states(state="stopped", run="r2", reason="ben switched to none")
    with pytest.raises(errors.Problem, match="spark2: ben switched to none"):
        planner.check_restart("glm", off_states)


FAILS = {"start_ok": False}
GROUP_FAILS = {GLM: FAILS, SPARE: FAILS}
NOTHING_STARTS = {**GROUP_FAILS, OWN: {**UP, **FAILS}}
BACK = "the switch to glm FAILED; hot again: own on spark2"


@pytest.mark.parametrize(
    ("first", "second", "code", "hot", "message"),
    [
        (GROUP_FAILS, {}, 1, [[], ["own"]], BACK),
        ({}, GROUP_FAILS, 1, [[], ["own"]], BACK),
        ({OWN: UP}, NOTHING_STARTS, 4, [["own"], []], "on spark1; NOT hot again: own on spark2"),
        ({}, NOTHING_STARTS, 4, [[], []], "NO MODEL IS HOT: glm failed; NOT hot again: own on"),
        ({}, {GLM: FAILS}, 3, 2 * [["glm-fallback"]], "its fallback glm-fallback is hot"),
    ],
    ids=["rank 0 fails", "rank 1 fails", "one returns", "none returns", "the fallback starts"],
)
def test_after_a_failed_start_it_is_said_who_has_what(pair, first, second, code, hot, message):
    for spark, units in zip(pair, (first, second), strict=True):
        for unit, fields in units.items():
            spark.systemd.unit(unit, journal=["ERROR no such device"], **fields)
    exit_code, lines = pair[0].switch("glm")
    assert (exit_code, hot_everywhere(pair)) == (code, hot) and message in lines[-1]
    assert any("ERROR no such device" in line for line in lines)


def test_where_a_model_does_not_stop_no_rank_starts(pair):
    pair[1].systemd.unit(OWN, **UP, stop_fails="Job timed out.")
    code, lines = pair[0].switch("glm")
    assert code == 1, lines
    assert any(f"systemctl stop {OWN} failed: Job timed out." in line for line in lines)
    assert hot_everywhere(pair) == [[], ["own"]]
    assert not any("start" in call.split() and GLM in call for call in calls(pair[0]))


def test_a_rank_that_ends_well_while_another_one_loads_is_a_failure(pair):
    """vLLM ends with success when its engine was killed."""
    pair[0].systemd.unit(SPARE, start_ok=False)
    # The stop ends it, when the other's end has been noticed.
    work = one_rank_up(pair, 600)
    # Until then the end would be that of the start itself.
    until(lambda: not pair[1].agent_state()["busy"], "rank 1 has started well")
    pair[1].systemd.unit(GLM)
    out = work.output()
    assert (work.returncode, hot_everywhere(pair)) == (1, [[], ["own"]]), out
    assert "it ended by itself" in out


def test_a_killed_switch_is_undone_on_every_member(pair):
    """By systemd; by the lease: test_member_server.py."""
    one_rank_up(pair).kill()
    assert pair[0].switch("--finish", "")[0] == 0
    assert hot_everywhere(pair) == [[], ["own"]]
    assert not any(cluster_runs.recorded_switch_part(spark.paths) for spark in pair)


def test_a_killed_switch_owes_the_group_that_was_hot_and_rank_0_starts_it_again(pair):
    pair[0].switch("glm")
    pair[1].systemd.unit(OWN, on_start=30)
    work = pair[1].switch_begun("own")
    until(lambda: pair[1].state(OWN) == "activating", "own is starting")
    work.kill()
    until(lambda: hot_everywhere(pair) == [["glm"], ["glm"]], "the cluster is back")


def test_a_member_that_is_lost_while_starting_gives_the_other_back_what_it_had(pair):
    pair[0].systemd.unit(OWN, **UP)
    work = one_rank_up(pair, 60)
    pair[1].power_off()
    out = work.output()
    assert (work.returncode, hot_everywhere(pair)) == (4, [["own"], []]), out
    message = "hot again: own on spark1; not heard from, which undoes it alone: own on spark2"
    assert message in " ".join(out.split()) and "NO MODEL IS HOT" not in out


def test_what_is_starting_ends_although_a_deploy_took_its_model_away(pair):
    work = one_rank_up(pair, 60)
    for spark in pair:
        spark.leave_cluster()
    pair[1].freeze()
    out = work.output()
    pair[1].thaw()
    assert work.returncode == 4, out
    assert pair[0].state() == "inactive"
    until(lambda: pair[1].hot == ["own"], "its model is back")


def test_a_message_that_comes_late_does_not_end_what_a_member_brings_back(pair):
    """As it was sent to an agent that was frozen, and reads it once it undoes its part."""
    work = one_rank_up(pair, 60)
    pair[1].systemd.unit(OWN, on_start=5)
    part = {"switch": pair[1].agent_state()["switch"]}
    pair[1].ask("abort", {**part, "reason": "somebody is not heard any more"})
    for late in ("drop", "start", "commit"):
        with pytest.raises(errors.Problem, match="over here"):
            pair[1].ask(late, {**part, "model": "glm", "hot": None})
    until(lambda: pair[1].hot == ["own"], "its model is back")
    out = work.output()
    assert (work.returncode, pair[1].hot) == (4, ["own"]), out


def test_an_agent_that_is_restarted_in_a_switch_undoes_its_part(pair):
    work = one_rank_up(pair)
    pair[1].kill_agent()
    pair[1].power_on()
    until(lambda: pair[1].hot == ["own"], "its model is back")
    message = switch_history.load(pair[1].paths)[0].words
    assert message == "it was undone: the cluster agent was restarted"
    work.output()
    assert pair[0].hot == []
    assert_nobody_switches(pair)


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Two members on which the cluster is hot."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        code, lines = sparks[0].switch("glm")
        assert code == 0, lines
        yield sparks


def wait_for_new_run(group, run: str) -> None:
    """Wait until the cluster is hot in another run than this one."""
    until(lambda: group[0].cluster_run.run != run, "another run")
    until(lambda: group[0].cluster_run.state == "hot", "hot again")


def wait_until_left_down(group, seconds: float = LIMIT_S) -> str:
    """The reason for which no member has the cluster any more."""
    until(lambda: group[0].cluster_run.state == "down", "left down", seconds)
    # The other one is told: by itself it would believe in the cluster for the lease.
    until(lambda: all(spark.hot in ([], ["own"]) for spark in group), "stopped on both", 10)
    return group[0].cluster_run.reason


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_rank_that_ends_takes_the_group_down_and_up_again(group, rank, state):
    run = group[0].cluster_run.run
    group[rank].systemd.unit(GLM, ActiveState=state)
    wait_for_new_run(group, run)
    assert hot_everywhere(group) == [["glm"], ["glm"]]
    assert f"spark{rank + 1}" in group[0].cluster_run.reason
    assert len(group[0].cluster_run.starts) == 1
    # Whole: the rank that lived was stopped too.
    peer_calls = group[1 - rank].systemd.calls
    assert f"systemctl stop -- {GLM}" in peer_calls
    assert peer_calls.count(f"systemctl start -- {GLM}") == 2


def test_a_group_that_does_not_stay_is_left_down_with_the_reason(group):
    for spark in group:
        spark.systemd.unit(SPARE, start_ok=False)
    for _ in range(3):
        run = group[0].cluster_run.run
        group[1].systemd.unit(GLM, ActiveState="inactive")
        wait_for_new_run(group, run)
    group[0].systemd.unit(GLM, ActiveState="inactive")
    assert "3 starts in 30 min did not help" in wait_until_left_down(group)


def end_by_memory_watch(spark, when: float) -> None:
    kill = watch_findings.MemoryKill("glm", GLM, "serving", 4.0, 3.8, when)
    watch_findings.save(spark.paths, kill)
    spark.systemd.unit(GLM, ActiveState="failed", SubState="failed")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["goes on", "is restarted"])
def test_a_rank_that_the_memory_watch_ended_leaves_the_group_down(group, rank, is_restarted):
    if is_restarted:
        group[rank].kill_agent()
    end_by_memory_watch(group[rank], time.time())
    if is_restarted:
        group[rank].power_on()
    assert "the memory watch ended it while serving: 3.8 GiB" in wait_until_left_down(group)
    assert not group[0].cluster_run.starts


def test_what_the_memory_watch_ended_before_this_run_says_nothing_of_it(group):
    run = group[0].cluster_run.run
    end_by_memory_watch(group[1], group[1].cluster_run.since - 1.0)
    wait_for_new_run(group, run)
    assert "memory watch" not in group[0].cluster_run.reason


def test_a_start_that_fails_counts(group):
    for spark in group:
        for unit in (GLM, SPARE):
            spark.systemd.unit(unit, start_ok=False)
    wait_until_left_down(group)
    assert len(group[0].cluster_run.starts) == 3


def test_an_engine_that_generates_nothing_ends_the_group(group):
    """A frozen rank: every unit is up and /health is green."""
    group[0].engine.chat = lambda _: (200, FakeEngine.answer("", 0))
    for unit in (GLM, SPARE):
        group[1].systemd.unit(unit, start_ok=False, ActiveState="active", SubState="running")
    message = "rank 0 on spark1 generates nothing"
    until(lambda: message in group[0].cluster_run.reason, "seen")
    until(lambda: hot_everywhere(group) == [[], []], "ended on both")


def test_a_member_without_power_ends_the_group_and_it_waits_for_its_return(group):
    run = group[0].cluster_run.run
    group[1].power_off()
    until(lambda: group[0].hot == [], "ended on the first")
    # As long as a Spark needs to boot.
    clock.sleep(120)
    assert "spark2 was not heard for" in group[0].cluster_run.reason
    assert group[0].cluster_run.state == "recovering"
    group[1].power_on()
    wait_for_new_run(group, run)
    assert hot_everywhere(group) == [["glm"], ["glm"]]


def test_a_member_that_does_not_return_leaves_the_group_down(group):
    group[1].power_off()
    message = "; after 10 min: spark2 (127.0.1.2:7079) does not answer"
    assert message in wait_until_left_down(group, 700)


def test_a_member_that_does_not_hear_rank_0_stops_by_itself(group):
    group[0].freeze()
    until(lambda: group[1].hot == [], "stopped")
    assert group[1].cluster_run.state == "ended"
    assert "spark1, rank 0, was not heard for" in group[1].cluster_run.reason
    group[0].thaw()
    until(lambda: hot_everywhere(group) == [["glm"], ["glm"]], "hot again")
    assert group[1].cluster_run.run == group[0].cluster_run.run


def test_why_a_group_ended_outlives_a_boot_and_it_stays_down(group):
    group[1].power_off()
    until(lambda: group[0].cluster_run.state == "recovering", "recovering")
    why = group[0].cluster_run.reason
    group[0].power_off()
    group[1].power_on()
    group[0].power_on()
    assert (group[0].cluster_run.state, hot_everywhere(group)) == ("down", [[], []])
    assert [spark.cluster_run.reason for spark in group] == [
        f"{why}; then spark1 was rebooted or lost its power",
        "spark2 was rebooted or lost its power",
    ]


@pytest.mark.parametrize("is_soon_back", [True, False])
def test_rank_0_that_was_rebooted_starts_nothing_and_the_others_learn_why(group, is_soon_back):
    group[0].power_off()
    if not is_soon_back:
        until(lambda: group[1].cluster_run.state == "ended", "ended")
        assert "rank 0, was not heard" in group[1].cluster_run.reason
    group[0].power_on()
    until(lambda: group[1].cluster_run.state == "down", "left down")
    for spark in group:
        assert (spark.hot, spark.cluster_run.state) == ([], "down")
        assert spark.cluster_run.reason == "spark1 was rebooted or lost its power"


def test_an_agent_that_is_restarted_keeps_the_group_also_from_an_earlier_versions_record(group):
    run = group[0].cluster_run
    for spark in group:
        spark.kill_agent()
    group[0].paths.clusters.write_text(json.dumps({"pair": asdict(run)}))
    for spark in group:
        spark.power_on()
    until(lambda: group[0].cluster_run.members == {"spark1": "hot", "spark2": "hot"}, "heard")
    assert hot_everywhere(group) == [["glm"], ["glm"]]
    assert [spark.cluster_run.run for spark in group] == [run.run, run.run]
    assert [spark.systemd.calls.count(f"systemctl start -- {GLM}") for spark in group] == [1, 1]


def test_a_disk_that_is_full_costs_the_memory_of_a_boot_only(tmp_path, capsys):
    paths = layout.Paths(tmp_path)
    paths.clusters_on_disk.mkdir(parents=True)
    cluster_runs.save(paths, cluster_runs.ClusterRun("pair", "glm", "run"))
    assert cluster_runs.recorded_runs(paths)["pair"].model == "glm"
    assert "a boot will forget how it stands" in capsys.readouterr().out


def test_a_deploy_removes_both_records():
    records = (layout.Paths().clusters, layout.Paths().clusters_on_disk)
    assert [str(path) for path in records] == list(RECORDS)


def test_none_while_the_group_waits_to_be_started_is_final(group):
    group[1].power_off()
    until(lambda: group[0].cluster_run.state == "recovering", "recovering")
    code, lines = group[0].switch("none")
    assert (code, group[0].cluster_run.state) == (0, "stopped"), lines
    assert any("it stops its rank by itself" in line for line in lines)


def test_none_on_a_member_that_rank_0_did_not_hear_is_not_undone_by_rank_0(group):
    group[0].freeze()
    code, lines = group[1].switch("none")
    assert code == 0, lines
    group[0].thaw()
    assert "spark2: alice switched to none on spark2" in wait_until_left_down(group)


def test_a_member_that_chose_another_model_meanwhile_keeps_it(group):
    group[1].systemd.unit(GLM)
    group[1].systemd.unit(OWN, ActiveState="active", SubState="running")
    assert "spark2 has own hot now" in wait_until_left_down(group)
    assert hot_everywhere(group) == [[], ["own"]]


def test_who_is_switching_is_left_alone_and_a_rank_without_its_group_is_stopped(group):
    with switch_lock.hold_lock(group[0].paths.switch_lock, "ben", "own"):
        group[1].systemd.unit(GLM, ActiveState="inactive")
        until(lambda: "left to who is switching" in group[0].log.getvalue(), "seen")
        assert group[0].hot == ["glm"]
    assert group[0].switch("none")[0] == 0
    group[0].systemd.unit(GLM, ActiveState="active", SubState="running")
    until(lambda: group[0].hot == [], "stopped")
    assert f"{GLM} is up without its cluster: stopping it" in group[0].log.getvalue()


def test_a_rank_alone_is_refused_with_the_remedy_unless_its_group_starts(group, capsys):
    with pytest.raises(errors.Problem, match=r"never here alone\. Remedy: switch.sh glm"):
        lone_rank_refusal.main(["admit", "glm"], group[1].paths)
    assert lone_rank_refusal.main(["admit", "own"], group[1].paths) == 0
    assert lone_rank_refusal.main(["admit"]) == 2
    assert "cluster admit MODEL" in capsys.readouterr().err
    group[1].systemd.unit(GLM, on_start=5)
    until(lambda: group[1].state() == "activating", "it starts")
    assert lone_rank_refusal.main(["admit", "glm"], group[1].paths) == 0
