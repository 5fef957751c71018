"""A deploy that changes a cluster's hot model is in force on all members, or undone on all."""

from __future__ import annotations

import json

import pytest
from a_cluster import GLM, SPARE, cluster_of

from lockstep.onhost.cluster import cluster_rollout
from lockstep.onhost.core import common
from lockstep.onhost.records import before, generations

pytestmark = pytest.mark.slow

OLD, NEW = "a" * 16, "b" * 16
ID = "0123456789abcdef"


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members that a deploy has given new units; it took the group down, which was hot."""
    sparks = cluster_of(tmp_path, monkeypatch, 2)
    for spark in sparks:
        write(spark, OLD)
        generations.record(spark.paths, generation(OLD))
        before.keep(spark.paths, None, [f"/etc/systemd/system/{GLM}"], ID)
        write(spark, NEW)
        generations.record(spark.paths, generation(NEW))
    yield sparks
    for spark in sparks:
        spark.end()


def generation(name: str) -> dict:
    text = f"Environment=LOCKSTEP_GENERATION={name}\n"
    file = {"path": f"/etc/systemd/system/{GLM}", "text": text, "mode": "0644"}
    return {
        "digest": name,
        "engine": {"folder": "/opt/engines", "id": None},
        "images": [],
        "weights": {},
        "files": [{**file, "owner": "root", "group": "root"}],
    }


def unit(spark):
    return spark.paths.root / "etc/systemd/system" / GLM


def write(spark, name: str) -> None:
    unit(spark).parent.mkdir(parents=True, exist_ok=True)
    unit(spark).write_text(f"Environment=LOCKSTEP_GENERATION={name}\n")


def starts_only_with(spark, name: str) -> None:
    spark.systemd.unit(GLM, starts_with=[str(unit(spark)), name])


def found(sparks) -> list[tuple[str, str, list[str]]]:
    """Of each member: its unit's generation, that of its newest record, what is hot."""
    return [
        (
            unit(spark).read_text().strip().rpartition("=")[2],
            generations.records(spark.paths)[0]["digest"],
            spark.hot(),
        )
        for spark in sparks
    ]


def test_a_group_that_serves_stays_and_nothing_is_kept_any_more(pair):
    code, lines = pair[0].run("rollout", "together", "glm", ID)
    assert code == 0, lines
    assert found(pair) == 2 * [(NEW, NEW, ["glm"])]
    assert lines[-1] == "glm is hot on all members with what was deployed"
    assert not any(spark.paths.before.exists() or spark.paths.rollout.exists() for spark in pair)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_group_that_does_not_start_returns_on_all_members(pair, failing):
    starts_only_with(pair[failing], OLD)
    code, lines = pair[0].run("rollout", "together", "glm", ID)
    assert code == 1, lines
    assert found(pair) == 2 * [(OLD, OLD, ["glm"])]
    assert "glm: it does not start; every member returns to what there was" in lines
    assert lines[-2:] == [
        "glm is hot again on all members, as it was before",
        "glm: with what was deployed it does not start",
    ]
    note = "returned from generation 2: it does not start"
    assert [generations.records(spark.paths)[0]["note"] for spark in pair] == [note, note]
    assert not any(spark.paths.before.exists() or spark.paths.rollout.exists() for spark in pair)


def test_any_member_may_do_it_when_rank_0_is_no_part_of_the_deploy(pair):
    pair[0].paths.before.unlink()
    starts_only_with(pair[1], OLD)
    code, lines = pair[1].run("rollout", "together", "glm", ID)
    assert code == 1, lines
    assert found(pair) == [(NEW, NEW, ["glm"]), (OLD, OLD, ["glm"])]
    assert "spark1: nothing was changed here" in lines


def test_a_gate_that_refuses_has_all_return(pair):
    words = ["together", "glm", ID, "--gate", "--", "false"]
    code, lines = pair[0].run("rollout", *words)
    assert code == 1, lines
    assert "glm: the gate refused it; every member returns to what there was" in lines
    assert found(pair) == 2 * [(OLD, OLD, ["glm"])]


def test_where_the_old_one_does_not_come_back_either_that_is_said(pair):
    for name in (GLM, SPARE):
        pair[1].systemd.unit(name, start_ok=False)
    code, lines = pair[0].run("rollout", "together", "glm", ID)
    assert code == 4, lines
    assert found(pair) == 2 * [(OLD, OLD, [])]
    assert lines[-2] == "NO MODEL IS HOT: glm did not come back either"


def test_a_rollout_that_was_cut_off_is_taken_back_on_all(pair):
    mark = {"target": "glm", "rollout": ID}
    pair[0].paths.rollout.write_text(json.dumps(mark))
    code, lines = pair[0].run("rollout", "mend")
    assert code == 0, lines
    assert found(pair) == 2 * [(OLD, OLD, ["glm"])]
    assert not pair[0].paths.rollout.exists()


def test_back_by_hand_returns_on_all_members(pair):
    pair[0].switch("glm")
    code, lines = pair[1].run("rollout", "back", "too slow")
    assert code == 0, lines
    assert found(pair) == 2 * [(OLD, OLD, ["glm"])]
    note = "returned from generation 2: too slow"
    assert [generations.records(spark.paths)[0]["note"] for spark in pair] == [note, note]


def test_what_another_deploy_kept_is_not_returned_to(pair):
    assert cluster_rollout.ended(pair[0].paths, "another", "why") == 0
    assert found(pair)[0] == (NEW, NEW, [])
    assert pair[0].paths.before.exists()


def test_an_agent_runs_returns_and_nothing_else():
    with pytest.raises(common.Problem, match="no return"):
        cluster_rollout.here(["go"])
