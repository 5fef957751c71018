"""A rollout on one host: a hot model is restarted with what is new, or gets back what was old."""

from __future__ import annotations

import io
import json

import pytest
from onhost_fakes import write_models

from lockstep.onhost.core import config, errors, switch_lock
from lockstep.onhost.records import deploy_lock, generations, json_records, rollback_journal
from lockstep.onhost.records.ownership import MARK
from lockstep.onhost.rollout import deploy_rollback, rollout
from lockstep.onhost.switching import hot_change_under_way

QWEN, SPARE, OTHER = "vllm-qwen36.service", "vllm-qwen36-fallback.service", "vllm.service"
OLD, NEW = "a" * 16, "b" * 16


def test_a_hot_model_is_restarted_with_what_was_deployed(spark, capsys):
    spark.deploy()
    assert rollout.main(["go"], spark.paths) == 0
    assert spark.systemd.calls == [
        f"systemctl stop -- {QWEN}",
        f"systemctl reset-failed -- {QWEN}",
        f"systemctl start -- {QWEN}",
    ]
    assert len(spark.engine.requests) == 1
    assert spark.unit_state == (NEW, NEW, True)
    assert spark.active == [QWEN]
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert rollback_journal.unfinished_journal(spark.paths), "a later step may fail"
    assert capsys.readouterr().out.endswith("qwen is hot with what was deployed\n")


@pytest.mark.parametrize("hot", [True, False], ids=["as its unit says", "not hot"])
def test_a_model_that_needs_no_restart_is_left_alone(spark, hot):
    if hot:
        spark.begin()
    else:
        spark.deploy()
        spark.systemd.unit(QWEN)
    assert rollout.main(["go"], spark.paths) == 0
    assert (spark.systemd.calls, spark.engine.requests) == ([], [])


def test_a_start_that_fails_gives_the_host_everything_back(spark, capsys):
    spark.starts_only_with(OLD)
    spark.deploy()
    assert rollout.main(["go"], spark.paths) == 1
    assert spark.unit_state == (OLD, OLD, False)
    assert spark.active == [QWEN]
    assert not spark.paths.begun_journal.exists()
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert "systemctl daemon-reload" in spark.systemd.calls
    output = capsys.readouterr().out
    assert "qwen: it does not start; returning to what there was" in output
    assert output.endswith("qwen is hot again, as it was before this deploy\n")


def test_a_model_that_starts_and_gives_no_token_is_taken_back(spark, capsys):
    spark.deploy()
    spark.engine.chat = lambda _: (200, spark.engine.answer("", 0))
    assert (rollout.main(["go"], spark.paths), spark.unit_state) == (1, (OLD, OLD, False))
    assert "no token comes where clients ask" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "end"), [(0, (0, NEW)), (1, (1, OLD))])
def test_a_gate_decides_whether_the_new_one_stays(spark, capsys, code, end):
    spark.deploy()
    gate = ["--gate", "--", "sh", "-c", f"exit {code}"]
    assert (rollout.main(["go", *gate], spark.paths), spark.unit_state[0]) == end
    assert ("the gate refused it" in capsys.readouterr().out) == bool(code)


def test_where_the_old_one_does_not_come_back_its_fallback_does(spark, capsys):
    data = {**spark.models["qwen"], "fallback": "qwen-fallback"}
    models = {"qwen": data, "qwen-fallback": {**spark.models["other"], "unit": SPARE}}
    write_models(spark.paths, models)
    spark.systemd.unit(SPARE)
    spark.runs(start_ok=False)
    spark.deploy()
    assert rollout.main(["go"], spark.paths) == 3
    assert spark.active == [SPARE]
    assert "its fallback qwen-fallback is hot" in capsys.readouterr().out


def test_where_nothing_comes_back_that_is_said(spark, capsys):
    spark.runs(start_ok=False)
    spark.deploy()
    assert rollout.main(["go"], spark.paths) == 4
    assert (spark.active, spark.unit_state) == ([], (OLD, OLD, False))
    assert "NO MODEL IS HOT" in capsys.readouterr().out


def test_a_rollout_that_was_killed_is_taken_back_once(spark, capsys):
    spark.deploy()
    work = hot_change_under_way.HotWork("qwen", "the deploy")
    json_records.save(spark.paths.hot_change, hot_change_under_way.HotChange(rollout=work))
    assert rollout.main(["mend"], spark.paths) == 0
    assert (spark.active, spark.unit_state) == ([QWEN], (OLD, OLD, False))
    earlier_count = len(spark.systemd.calls)
    assert rollout.main(["mend"], spark.paths) == 0
    assert len(spark.systemd.calls) == earlier_count
    assert "was cut off; returning" in capsys.readouterr().out


def test_a_switch_of_an_operator_is_waited_for(spark, monkeypatch, capsys):
    spark.deploy()
    held_lock = switch_lock.hold_lock(spark.paths.switch_lock, "anna", "other")
    held_lock.__enter__()
    spark.clock.at(5, lambda: held_lock.__exit__(None, None, None))
    assert rollout.main(["go"], spark.paths) == 0
    assert "waiting: anna is switching to other" in capsys.readouterr().out


def a_generation(digest: str, restart_key: str, *more: str) -> dict:
    unit = f"# {MARK}\nEnvironment=LOCKSTEP_RESTART_KEY={restart_key}\n"
    texts = {f"/etc/systemd/system/{QWEN}": unit, **dict.fromkeys(more, "new")}
    owner = {"mode": "0644", "owner": "root", "group": "root"}
    files = [{"path": path, "text": text, **owner} for path, text in texts.items()]
    engine = {"folder": "/opt/engines", "id": restart_key}
    return {"digest": digest, "engine": engine, "images": [], "weights": {}, "files": files}


def finished_deploy(spark, *more: str) -> None:
    """A deploy that has ended well: the second generation, whose qwen is hot."""
    generations.add_record(spark.paths, a_generation("one", OLD))
    spark.begin(*more)
    spark.deploy()
    generations.add_record(spark.paths, a_generation("two", NEW, "/data/new-launch.sh"))
    rollback_journal.finish(spark.paths)
    (spark.paths.proc / "7/environ").write_text(f"LOCKSTEP_RESTART_KEY={NEW}\0")


def test_what_a_return_changes_is_known_before_it(spark):
    assert rollback_journal.effects_of_return(spark.paths) == {}
    finished_deploy(spark)
    effects = rollback_journal.effects_of_return(spark.paths)
    files = ["/data/new-launch.sh", f"/etc/systemd/system/{QWEN}"]
    assert (effects["digest"], effects["number"], effects["files"]) == ("one", 1, files)
    assert (effects["interrupted"], effects["ends"], effects["cluster"]) == ("qwen", False, "")
    assert effects["foreign"] == ""
    # A deploy that has restarted nothing yet: qwen runs with the older file.
    (spark.paths.proc / "7/environ").write_text(f"LOCKSTEP_RESTART_KEY={OLD}\0")
    assert rollback_journal.effects_of_return(spark.paths)["interrupted"] == ""


@pytest.mark.parametrize(("words", "image"), [(["back"], "old"), (["back", "--keep-data"], "")])
def test_open_webuis_data_stay_on_request(spark, monkeypatch, words, image):
    finished_deploy(spark)
    document = json.loads(spark.paths.journal.read_text()) | {"webui": "old"}
    spark.paths.journal.write_text(json.dumps(document))
    images = []
    monkeypatch.setattr(
        deploy_rollback, "_restore_webui_data", lambda _, document: images.append(document["webui"])
    )
    assert (rollout.main(words, spark.paths), images) == (0, [image])


def test_a_return_is_refused_while_a_deploy_is_under_way(spark):
    finished_deploy(spark)
    with (
        deploy_lock.keep_deploys_away("deploy", spark.paths),
        pytest.raises(deploy_lock.DeployUnderWay),
    ):
        rollout.main(["back"], spark.paths)
    assert spark.unit_state == (NEW, NEW, True)


def newest_generation(spark) -> tuple[int, str, str]:
    record = generations.readable_records(spark.paths)[0]
    return record["number"], record["digest"], record["note"]


def test_a_host_returns_to_the_previous_generation_and_a_second_way_back_undoes_that(spark, capsys):
    finished_deploy(spark)
    assert rollout.main(["back", "12 of 29 tok/s"], spark.paths) == 0
    assert (spark.active, spark.unit_state) == ([QWEN], (OLD, OLD, False))
    assert newest_generation(spark) == (3, "one", "returned from generation 2: 12 of 29 tok/s")
    assert "systemctl reset-failed -- lockstep-job-*" in spark.systemd.calls
    assert "qwen is hot again" in capsys.readouterr().out
    assert rollout.main(["back"], spark.paths) == 0
    assert spark.unit_state == (NEW, NEW, True)
    assert newest_generation(spark) == (4, "two", "returned from generation 3")


def test_a_host_whose_deploy_failed_returns_to_what_it_was_before_that(spark, capsys):
    generations.add_record(spark.paths, a_generation("zero", "0" * 16))
    generations.add_record(spark.paths, a_generation("one", OLD))
    generations.record_begun(spark.paths, a_generation("two", NEW, "/data/new-launch.sh"))
    spark.deploy()
    # Without a mark: what the deploy began tells whose it is.
    (spark.root / "data/new-launch.sh").write_text("new")
    assert rollout.main(["back"], spark.paths) == 0
    assert spark.unit_state == (OLD, OLD, False)
    assert newest_generation(spark)[:2] == (2, "one")
    assert generations.begun_record(spark.paths) is None
    # It runs with the older file already.
    assert spark.active == [QWEN] and "qwen" not in capsys.readouterr().out


def test_a_way_back_over_a_file_of_somebody_elses_is_refused_while_all_runs(spark):
    (spark.root / "data").mkdir()
    foreign_file = spark.root / "data/launch.sh"
    foreign_file.write_text(f"# {MARK}\n")
    finished_deploy(spark, "/data/launch.sh")
    foreign_file.write_text("#!/bin/sh\n# by hand, since\n")
    spark.unit(NEW)
    with pytest.raises(errors.Problem, match=r"not made by Lockstep: /data/launch.sh \(written "):
        rollout.main(["back"], spark.paths)
    assert "/data/launch.sh" in rollback_journal.effects_of_return(spark.paths)["foreign"]
    assert spark.active == [QWEN]
    assert (spark.unit_state[0], spark.systemd.calls) == (NEW, [])
    assert foreign_file.read_text().endswith("by hand, since\n")


def test_without_a_record_there_is_nothing_to_return_to(spark):
    generations.add_record(spark.paths, a_generation("one", OLD))
    with pytest.raises(errors.Problem, match="no record of a previous generation"):
        rollout.main(["back"], spark.paths)
    assert spark.systemd.calls == []


@pytest.mark.parametrize(
    "words", [[], ["go", "now"], ["go", "--gate", "--"], ["back", "a", "b"], ["mend", "x"]]
)
def test_wrong_use_is_told_and_does_nothing(spark, words, capsys):
    assert rollout.main(words, spark.paths) == 2
    assert spark.systemd.calls == []
    assert "usage: rollout" in capsys.readouterr().err


def test_the_program_notes_what_it_is_told_to(spark, monkeypatch):
    request = {"paths": ["/etc/absent"], "rollout": "id"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(request)))
    spark.begin()
    assert rollout.main(["note"], spark.paths) == 0
    document = rollback_journal.unfinished_journal(spark.paths)
    assert document["before"]["/etc/absent"] is None
    assert OLD in document["before"][f"/etc/systemd/system/{QWEN}"]["text"]
    assert (document["points"], document["since"], document["rollout"]) == (OLD, 1, "id")


def test_a_model_that_runs_on_other_hosts_too_is_not_restarted_here(spark):
    spark.join_cluster("qwen", rank=1)
    generations.add_record(spark.paths, a_generation("one", OLD))
    spark.deploy()
    generations.add_record(spark.paths, a_generation("two", NEW))
    assert rollout.outdated_models(config.load_host(spark.paths.models), spark.paths) == []
