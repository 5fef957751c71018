"""A member's part of a deploy that changes a cluster's hot model: it serves, or each returns."""

import pytest
from a_cluster import GLM, cluster_of
from onhost_fakes import FakeEngine

from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.rollout import deploy_rollback

OLD, NEW = "a" * 16, "b" * 16
ID = "0123456789abcdef"


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members that a deploy has given new units; it took the cluster down, which was hot."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        for spark in sparks:
            write(spark, OLD)
            generations.add_record(spark.paths, generation(OLD))
            units = [f"/etc/systemd/system/{GLM}"]
            rollback_journal.note_before_change(spark.paths, units, rollout=ID)
            write(spark, NEW)
            generations.add_record(spark.paths, generation(NEW))
        yield sparks


def generation(name: str) -> dict:
    text = f"Environment=LOCKSTEP_RESTART_KEY={name}\n"
    file = {"path": f"/etc/systemd/system/{GLM}", "text": text, "mode": "0644"}
    files = [{**file, "owner": "root", "group": "root"}]
    engine = {"folder": "/opt/engines", "id": None}
    return {"digest": name, "engine": engine, "images": [], "weights": {}, "files": files}


def unit(spark):
    return spark.paths.root / "etc/systemd/system" / GLM


def write(spark, name: str) -> None:
    unit(spark).parent.mkdir(parents=True, exist_ok=True)
    unit(spark).write_text(f"Environment=LOCKSTEP_RESTART_KEY={name}\n")


def member_states(sparks) -> list[tuple[str, str, list[str]]]:
    """Restart key of the unit, digest of the newest record, and hot model of each member."""
    keys = [unit(spark).read_text().strip().rpartition("=")[2] for spark in sparks]
    newest_records = [generations.readable_records(spark.paths)[0] for spark in sparks]
    return [
        (key, record["digest"], spark.hot)
        for key, record, spark in zip(keys, newest_records, sparks, strict=True)
    ]


# Any member may start it when rank 0 is no part of the deploy.
@pytest.mark.parametrize("rank", [0, 1])
def test_a_group_that_serves_is_hot_on_all_members(pair, rank):
    code, lines = pair[rank].run("rollout.rollout", "up", "glm")
    assert (code, member_states(pair)) == (0, 2 * [(NEW, NEW, ["glm"])]), lines
    assert any(line.startswith("glm: a token came, ") for line in lines)
    assert lines[-1] == "glm is hot on all members with what was deployed"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_group_that_does_not_start_returns_on_all_members(pair, failing):
    """Every step as the deploy takes it over its sessions."""
    pair[failing].systemd.unit(GLM, starts_with=[str(unit(pair[failing])), OLD])
    code, lines = pair[0].run("rollout.rollout", "up", "glm")
    assert (code, lines[-1]) == (1, "glm: with what was deployed it does not start")
    for spark in pair:
        words = ("rollout.rollout", "ended", ID, lines[-1])
        assert spark.run(*words) == (0, ["as it was before this deploy"])
    assert pair[0].switch("glm")[0] == 0
    assert member_states(pair) == 2 * [(OLD, OLD, ["glm"])]
    note = f"returned from generation 2: {lines[-1]}"
    assert [generations.readable_records(spark.paths)[0]["note"] for spark in pair] == [note, note]
    assert not any(spark.paths.begun_journal.exists() for spark in pair)


def test_a_group_without_a_token_or_that_its_gate_refuses_does_not_serve(pair):
    code, lines = pair[0].run("rollout.rollout", "up", "glm", "--gate", "--", "false")
    assert (code, lines[-1]) == (1, "glm: with what was deployed the gate refused it")
    pair[0].engine.chat = lambda _: (200, FakeEngine.answer("", 0))
    code, lines = pair[1].run("rollout.rollout", "up", "glm")
    assert code == 1, lines
    assert lines[-1].startswith("glm: with what was deployed no token comes (spark1: no token: ")


def test_back_by_hand_ends_the_group_and_each_member_returns_for_itself(pair):
    pair[0].switch("glm")
    code, lines = pair[1].run("rollout.rollout", "back", "too slow")
    message = "glm stays down until all members of pair have returned. Then: switch.sh glm"
    assert (code, lines[-1]) == (4, message)
    assert member_states(pair) == [(NEW, NEW, []), (OLD, OLD, [])]
    assert pair[0].run("rollout.rollout", "back")[0] == 0
    assert pair[0].switch("glm")[0] == 0
    assert member_states(pair) == 2 * [(OLD, OLD, ["glm"])]
    note = generations.readable_records(pair[1].paths)[0]["note"]
    assert note == "returned from generation 2: too slow"


def test_what_another_deploy_kept_is_not_returned_to(pair):
    assert deploy_rollback.return_from_cluster_rollout(pair[0].paths, "another", "why") == 0
    assert member_states(pair)[0] == (NEW, NEW, [])
    assert rollback_journal.unfinished_journal(pair[0].paths)["rollout"] == ID
