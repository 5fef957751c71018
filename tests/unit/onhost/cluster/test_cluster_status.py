"""`lockstep cluster status` from the members' answers, and the display of each member."""

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
LOST = member("ended", hot=None, reason="spark1, rank 0, was not heard")
DOWN = member("down", hot=None, reason="3 starts in 30 min did not help")


@pytest.mark.parametrize(
    ("first", "second", "code", "message"),
    [
        (member(), member(ready=None), 0, "glm hot on spark1, spark2"),
        (member(), LOST, 1, "glm is not whole"),
        (member(), member(run="b"), 1, "glm is not whole"),
        (member(ready=False), member(), 1, "glm generates nothing"),
        (DOWN, OFF, 1, "left down"),
        (OFF, OFF, 0, "off"),
        (member(), "no route to host", 2, "could not be told"),
    ],
    ids=["well", "half", "two runs", "no token", "given up", "off", "silent"],
)
def test_a_group_that_is_not_well_is_a_finding(first, second, code, message):
    exit_code, lines = judge_cluster("pair", MEMBERS, {"spark1": first, "spark2": second})
    assert (exit_code, lines[0], len(lines)) == (code, f"pair: {message}", 3)


def host(rank: int) -> config.HostConfig:
    members = tuple(topology.TopologyMember(f"spark{n}", f"10.0.0.{n}") for n in (1, 2))
    pair = topology.Cluster("pair", rank, 7079, members)
    model = config.Model("glm", "vllm-glm.service", "", "m", 90.0, cluster="pair")
    return config.HostConfig("spark1", {"glm": model}, clusters={"pair": pair})


def test_status_tells_who_is_silent_and_that_a_group_was_started_again():
    states = {"spark1": "hot", "spark2": "silent for 6 s"}
    run = run_records.ClusterRun(
        "pair", "glm", "a", since=900.0, members=states, reason="why", starts=(1.0,)
    )
    document = cluster_status.as_json(host(0), {"pair": run})
    head, *details = cluster_status.status_lines(document, 1000.0)
    assert head.startswith("cluster pair (spark1, spark2): glm hot since ")
    assert details == ["  spark2: silent for 6 s", "  started again 1 times; before: why"]


def test_a_rank_says_which_member_answers():
    texts = [cluster_status.answering_member_text(host(n), host(n).model("glm")) for n in (0, 1)]
    assert texts == [None, "rank 1 of 2; spark1 answers"]
