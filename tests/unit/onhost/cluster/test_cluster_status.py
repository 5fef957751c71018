"""`lockstep cluster status` from the members' answers, and the display of each member."""

from __future__ import annotations

import pytest

from lockstep.cli.cluster.status import judge_cluster
from lockstep.onhost.cluster import cluster_status, run_records
from lockstep.onhost.core import config, topology

MEMBERS = ["spark1", "spark2"]


def member(state="hot", run="a", hot="glm", ready=True, reason=""):
    cluster_run = {"model": "glm", "run": run, "state": state, "reason": reason}
    return {
        "hot": hot,
        "models": {"glm": {"ready": ready}},
        "clusters": {"pair": {"run": cluster_run if state else None}},
    }


OFF = member(None, hot="qwen")
LOST = member("ended", hot=None, reason="spark1, rank 0, was not heard for 21 s")
DOWN = member("down", hot=None, reason="3 starts in 30 min did not help")


@pytest.mark.parametrize(
    ("first", "second", "code", "message", "last_line"),
    [
        (member(), member(ready=None), 0, "glm hot on spark1, spark2", "glm hot"),
        (
            *(member(), LOST, 1, "glm is not whole"),
            "no model hot; glm ended: spark1, rank 0, was not heard for 21 s",
        ),
        (member(), member(run="b"), 1, "glm is not whole", "glm hot"),
        (member(ready=False), member(), 1, "glm generates nothing", "glm hot"),
        (DOWN, OFF, 1, "left down", "qwen hot"),
        (OFF, OFF, 0, "off", "qwen hot"),
        (member(), "no route to host", 2, "could not be told", "no route to host"),
    ],
    ids=["well", "half", "two runs", "no token", "given up", "off", "silent"],
)
def test_a_group_that_is_not_well_is_a_finding(first, second, code, message, last_line):
    exit_code, lines = judge_cluster("pair", MEMBERS, {"spark1": first, "spark2": second})
    assert (exit_code, lines[0], len(lines)) == (code, f"pair: {message}", 3)
    assert lines[-1] == f"  spark2: {last_line}"


def host(rank: int) -> config.HostConfig:
    members = tuple(topology.TopologyMember(f"spark{n}", f"10.0.0.{n}") for n in (1, 2))
    pair = topology.Cluster("pair", rank, 7079, members)
    model = config.Model("glm", "vllm-glm.service", "", "m", 90.0, cluster="pair")
    return config.HostConfig("spark1", {"glm": model}, clusters={"pair": pair})


def shown_lines(rank: int, cluster_run: run_records.ClusterRun) -> list[str]:
    return cluster_status.status_lines(
        cluster_status.as_json(host(rank), {"pair": cluster_run}), 1000.0
    )


def test_status_tells_when_the_last_token_came_and_who_is_silent():
    states = {"spark1": "hot", "spark2": "silent for 6 s"}
    cluster_run = run_records.ClusterRun(
        "pair", "glm", "a", since=900.0, sign_time=988.0, members=states
    )
    head, *details = shown_lines(0, cluster_run)
    assert head.startswith("cluster pair (spark1, spark2): glm hot since ")
    assert details == ["  a token came 12 s ago", "  spark2: silent for 6 s"]
    assert shown_lines(1, cluster_run)[1] == "  spark1 was heard 12 s ago"
    assert cluster_status.answering_member_text(host(1), host(1).model("glm")) == (
        "rank 1 of 2; spark1 answers"
    )
    assert cluster_status.answering_member_text(host(0), host(0).model("glm")) is None


def test_status_says_why_a_group_ended_and_that_it_was_started_again():
    why = "a rank on spark2 ended by itself"
    down = run_records.ClusterRun(
        "pair", "glm", "a", "down", since=100.0, reason=why, end_time=990.0
    )
    head, *details = shown_lines(0, down)
    assert "glm left down since " in head and head.endswith("(10 s)")
    assert details == [f"  {why}"]
    again = run_records.ClusterRun("pair", "glm", "b", since=995.0, reason=why, starts=(1.0,))
    assert shown_lines(0, again)[1] == f"  started again 1 times; before: {why}"
    assert cluster_status.status_lines(cluster_status.as_json(host(0), {}), 1.0) == []
