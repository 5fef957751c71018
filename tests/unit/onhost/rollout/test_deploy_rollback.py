"""A host returns from a deploy that did not end well, after its model was restarted or before."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core import errors
from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.records.ownership import MARK
from lockstep.onhost.rollout import rollout
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.webui import data_copies, update

QWEN, GATEWAY, BROUGHT = "vllm-qwen36.service", "lockstep-gateway.service", "brought.service"
OLD, NEW = "a" * 16, "b" * 16
WHY = "deploy of anna: failed on spark-2"


def deploy_whole(spark: Any, *more: str) -> None:
    """Do the work of an all-or-none deploy, up to the restart."""
    spark.begin(*more)
    spark.deploy()


def restart_model(spark: Any) -> None:
    assert rollout.main(["go"], spark.paths) == 0
    (spark.paths.proc / "7/environ").write_text(f"LOCKSTEP_RESTART_KEY={NEW}\0")


def test_a_host_that_is_done_returns_and_its_model_serves_again(spark, capsys):
    engine = {"folder": "/opt/engines", "id": OLD}
    contents = {"engine": engine, "images": [], "weights": {}, "files": []}
    generations.add_record(spark.paths, {"digest": "one", **contents})
    deploy_whole(spark)
    restart_model(spark)
    assert spark.paths.begun_journal.exists()
    generations.add_record(spark.paths, {"digest": "two", **contents})
    earlier_count = len(spark.systemd.calls)
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert (spark.active, spark.unit_state) == ([QWEN], (OLD, OLD, False))
    assert f"systemctl start -- {QWEN}" in spark.systemd.calls[earlier_count:]
    newest = generations.readable_records(spark.paths)[0]
    assert (newest["number"], newest["digest"]) == (3, "one")
    assert newest["note"] == f"returned from generation 2: {WHY}"
    assert not spark.paths.begun_journal.exists()
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert "nothing was kept here to return to" in capsys.readouterr().out


def test_a_model_that_was_not_restarted_yet_runs_on_and_one_that_was_stopped_is_hot_again(spark):
    spark.deploy()
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert (spark.active, spark.unit_state) == ([QWEN], (OLD, OLD, False))
    assert [call for call in spark.systemd.calls if QWEN in call] == []
    spark.deploy()
    spark.systemd.unit(QWEN)
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert spark.active == [QWEN]


def test_one_that_does_not_serve_any_more_is_told(spark):
    deploy_whole(spark)
    restart_model(spark)
    spark.systemd.unit(QWEN, ActiveState="active", SubState="running", MainPID="7", start_ok=False)
    assert rollout.main(["return", WHY], spark.paths) == errors.EXIT_NOTHING_HOT
    assert spark.unit_state[0] == OLD


def test_units_run_and_start_at_boot_as_before_and_new_ones_end(spark):
    at_boot = {"UnitFileState": "enabled"}
    path = spark.units / GATEWAY
    path.write_text(f"# {MARK}\nEnvironment=LOCKSTEP_RESTART_KEY={OLD}\n")
    running = {"ActiveState": "active", "SubState": "running", "MainPID": "9"}
    spark.systemd.unit(GATEWAY, **running, **at_boot)
    (spark.paths.proc / "9").mkdir()
    (spark.paths.proc / "9/environ").write_text(f"LOCKSTEP_RESTART_KEY={NEW}\0")
    deploy_whole(spark, f"/etc/systemd/system/{GATEWAY}", f"/etc/systemd/system/{BROUGHT}")
    # An earlier deploy's unit that this one has removed, and one that it has brought.
    path.unlink()
    spark.systemd.unit(GATEWAY)
    (spark.units / BROUGHT).write_text(f"# {MARK}\n")
    spark.systemd.unit(BROUGHT, **running, **at_boot)
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert OLD in path.read_text() and not (spark.units / BROUGHT).exists()
    assert f"systemctl enable -- {GATEWAY}" in spark.systemd.calls
    assert f"systemctl disable --now -- {BROUGHT}" in spark.systemd.calls
    assert f"systemctl restart -- {GATEWAY}" in spark.systemd.calls


def test_a_host_whose_own_restart_fails_loses_the_units_that_the_deploy_brought(spark):
    deploy_whole(spark, f"/etc/systemd/system/{BROUGHT}")
    (spark.units / BROUGHT).write_text(f"# {MARK}\n")
    spark.systemd.unit(BROUGHT, ActiveState="active", SubState="running")
    spark.starts_only_with(OLD)
    assert rollout.main(["go"], spark.paths) == 1
    assert spark.active == [QWEN] and not (spark.units / BROUGHT).exists()
    assert f"systemctl disable --now -- {BROUGHT}" in spark.systemd.calls


def test_open_webuis_image_of_before_gets_the_data_that_it_had(spark, monkeypatch):
    image_uses = []
    monkeypatch.setattr(update, "select_copy_for_image", lambda _, *use: image_uses.append(use))
    data_copies.save(spark.paths, data_copies.WebUiRecord(image="webui@old"))
    deploy_whole(spark)
    copy = data_copies.Snapshot(4, 0.0, "webui@old", 1)
    monkeypatch.setattr(data_copies, "complete_copies", lambda paths: [copy])
    data_copies.save(spark.paths, data_copies.WebUiRecord(image="webui@new"))
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert image_uses == [("webui@old", 4)]


def test_a_member_of_a_cluster_waits_for_the_deploy(spark):
    spark.begin()
    rollback_journal.note_before_change(spark.paths, rollout="id")
    spark.unit(NEW)
    assert rollout.main(["return", WHY], spark.paths) == 0
    assert spark.unit_state[0] == NEW and spark.paths.begun_journal.exists()
