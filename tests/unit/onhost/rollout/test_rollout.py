"""A rollout on one host: a hot model is restarted with what is new, or gets back what was old.

A host returns from a deploy that did not end well, after its model was restarted or before; so do
all members of a cluster whose model does not serve.
"""

import io
import json

import pytest
from a_clock import Clock
from a_cluster import GLM, cluster_of
from a_model_host import UP, ModelHost
from onhost_fakes import FakeEngine

from lockstep.onhost.core import config, errors, switch_lock
from lockstep.onhost.records import deploy_lock, generations, json_records, rollback_journal
from lockstep.onhost.records.ownership import MARK
from lockstep.onhost.rollout import deploy_rollback, rollout
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.webui import data_copies, update

QWEN, GATEWAY, BROUGHT = "vllm-qwen36.service", "lockstep-gateway.service", "brought.service"
QWEN_FILE, LAUNCHER = f"/etc/systemd/system/{QWEN}", "/data/new-launch.sh"
GLM_FILE = f"/etc/systemd/system/{GLM}"
OLD, NEW = "a" * 16, "b" * 16
BEFORE, AFTER = (OLD, OLD, False), (NEW, NEW, True)
WHY, ID = "deploy of anna: failed on spark-2", "0123456789abcdef"


def a_generation(digest: str, restart_key: str, *more: str, unit_file=QWEN_FILE) -> dict:
    texts = {unit_file: unit_text(restart_key), **dict.fromkeys(more, "new")}
    owner = {"mode": "0644", "owner": "root", "group": "root"}
    files = [{"path": path, "text": text, **owner} for path, text in texts.items()]
    engine = {"folder": "/opt/engines", "id": restart_key}
    return {"digest": digest, "engine": engine, "images": [], "weights": {}, "files": files}


def unit_text(restart_key: str) -> str:
    return f"# {MARK}\nEnvironment=LOCKSTEP_RESTART_KEY={restart_key}\n"


class Spark(ModelHost):
    """A host where qwen is hot with the old restart key; `deploy` writes the new one."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        super().__init__(tmp_path, monkeypatch, {"qwen": {"unit": QWEN}, "spare": {}, "other": {}})
        self.clock = Clock(monkeypatch)
        self.root = tmp_path / "root"
        self.engine_link = self.root / "opt/engines/current"
        self.engine_link.parent.mkdir(parents=True)
        self.engine_link.symlink_to(OLD)
        self.write(QWEN_FILE, unit_text(OLD))
        self.runs()

    def write(self, path: str, text: str = f"# {MARK}\n"):
        file = self.root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def has_key(self, restart_key: str, pid: int = 7) -> None:
        self.write(f"/proc/{pid}/environ", f"A=b\0LOCKSTEP_RESTART_KEY={restart_key}\0C=d\0")

    def runs(self, **more: object) -> None:
        """Let qwen run, as process 7, with the old restart key."""
        self.has_key(OLD)
        self.systemd.unit(QWEN, **UP, MainPID="7", **more)

    def begin(self, *more: str) -> None:
        """Note what is here, as every program does that writes for a deploy."""
        if generations.newest_record(self.paths) is None:
            generations.add_record(self.paths, {**a_generation("before", OLD), "files": []})
        paths = [QWEN_FILE, "/etc/lockstep/models.json", *more]
        rollback_journal.note_before_change(self.paths, paths)

    def deploy(self, *more: str) -> None:
        """Do the deploy's work before `go`."""
        self.begin(LAUNCHER, *more)
        self.write(QWEN_FILE, unit_text(NEW))
        self.write(LAUNCHER)
        self.engine_link.unlink()
        self.engine_link.symlink_to(NEW)

    def finish_deploy(self, *more: str) -> None:
        """A deploy that has ended well: the second generation, whose qwen is hot."""
        generations.add_record(self.paths, a_generation("one", OLD))
        self.deploy(*more)
        generations.add_record(self.paths, a_generation("two", NEW, LAUNCHER))
        rollback_journal.finish(self.paths)
        self.has_key(NEW)

    def run(self, *words: str) -> int:
        return rollout.main(list(words), self.paths)

    @property
    def file_state(self) -> tuple[str, str, bool]:
        """Restart key of the unit file, where `current` leads, whether the new file is there."""
        restart_key = (self.root / QWEN_FILE[1:]).read_text().strip().rpartition("=")[2]
        current = str(self.engine_link.readlink())
        return restart_key, current, (self.root / LAUNCHER[1:]).exists()

    @property
    def newest(self) -> tuple[int, str, str]:
        record = generations.readable_records(self.paths)[0]
        return record["number"], record["digest"], record["note"]


@pytest.fixture
def spark(tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch)
    yield spark
    spark.close()


def test_a_hot_model_is_restarted_with_what_was_deployed(spark):
    spark.deploy()
    assert (spark.run("go"), spark.hot, spark.file_state) == (0, ["qwen"], AFTER)
    calls = [f"systemctl {verb} -- {QWEN}" for verb in ("stop", "reset-failed", "start")]
    assert spark.systemd.calls == calls and len(spark.engine.requests) == 1
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert rollback_journal.unfinished_journal(spark.paths), "a later step may fail"


@pytest.mark.parametrize("hot", [True, False], ids=["as its unit says", "not hot"])
def test_a_model_that_needs_no_restart_is_left_alone(spark, hot):
    if hot:
        spark.begin()
    else:
        spark.deploy()
        spark.systemd.unit(QWEN)
    assert spark.run("go") == 0
    assert (spark.systemd.calls, spark.engine.requests) == ([], [])


def test_a_start_that_fails_gives_the_host_everything_back(spark):
    spark.runs(starts_with=[str(spark.root / QWEN_FILE[1:]), OLD])
    spark.deploy()
    assert (spark.run("go"), spark.hot, spark.file_state) == (1, ["qwen"], BEFORE)
    assert not spark.paths.begun_journal.exists()
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert "systemctl daemon-reload" in spark.systemd.calls


def test_a_model_that_starts_and_gives_no_token_is_taken_back(spark, capsys):
    spark.deploy()
    spark.engine.chat = lambda _: (200, spark.engine.answer("", 0))
    assert (spark.run("go"), spark.file_state) == (1, BEFORE)
    assert "no token comes where clients ask" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "end"), [(0, (0, AFTER)), (1, (1, BEFORE))])
def test_a_gate_decides_whether_the_new_one_stays(spark, code, end):
    spark.deploy()
    assert (spark.run("go", "--gate", "--", "sh", "-c", f"exit {code}"), spark.file_state) == end


@pytest.mark.parametrize(
    ("fallback", "code", "hot", "words"),
    [("spare", 3, ["spare"], "its fallback spare is hot"), (None, 4, [], "NO MODEL IS HOT")],
)
def test_where_the_old_one_fails_its_fallback_is_started(spark, capsys, fallback, code, hot, words):
    spark.tell("qwen", fallback=fallback)
    spark.runs(start_ok=False)
    spark.deploy()
    assert (spark.run("go"), spark.hot, spark.file_state) == (code, hot, BEFORE)
    assert words in capsys.readouterr().out


def test_a_rollout_that_was_killed_is_taken_back_once(spark, capsys):
    spark.deploy()
    work = hot_change_under_way.HotWork("qwen", "the deploy")
    json_records.save(spark.paths.hot_change, hot_change_under_way.HotChange(rollout=work))
    assert (spark.run("mend"), spark.hot, spark.file_state) == (0, ["qwen"], BEFORE)
    earlier_count = len(spark.systemd.calls)
    assert spark.run("mend") == 0
    assert len(spark.systemd.calls) == earlier_count
    assert "was cut off; returning" in capsys.readouterr().out


def test_a_switch_of_an_operator_is_waited_for(spark, capsys):
    spark.deploy()
    held_lock = switch_lock.hold_lock(spark.paths.switch_lock, "anna", "other")
    held_lock.__enter__()
    spark.clock.at(5, lambda: held_lock.__exit__(None, None, None))
    assert spark.run("go") == 0
    assert "waiting: anna is switching to other" in capsys.readouterr().out


def test_a_host_returns_to_the_previous_generation_and_a_second_way_back_undoes_that(spark):
    spark.finish_deploy()
    code = spark.run("back", "12 of 29 tok/s")
    assert (code, spark.hot, spark.file_state) == (0, ["qwen"], BEFORE)
    assert spark.newest == (3, "one", "returned from generation 2: 12 of 29 tok/s")
    assert "systemctl reset-failed -- lockstep-job-*" in spark.systemd.calls
    assert (spark.run("back"), spark.file_state) == (0, AFTER)
    assert spark.newest == (4, "two", "returned from generation 3")


def test_what_a_return_changes_is_known_before_it(spark):
    assert rollback_journal.effects_of_return(spark.paths) == {}
    spark.finish_deploy()
    effects = rollback_journal.effects_of_return(spark.paths)
    expected_effects = {"digest": "one", "number": 1, "files": [LAUNCHER, QWEN_FILE]}
    expected_effects |= {"interrupted": "qwen", "ends": False, "cluster": "", "foreign": ""}
    assert effects == {**effects, **expected_effects}
    # A deploy that has restarted nothing yet: qwen runs with the older file.
    spark.has_key(OLD)
    assert rollback_journal.effects_of_return(spark.paths)["interrupted"] == ""


@pytest.mark.parametrize(
    ("words", "uses"), [(["back"], [("webui@old", 4)]), (["back", "--keep-data"], [])], ids=str
)
def test_open_webuis_former_data_return_unless_they_are_to_stay(spark, monkeypatch, words, uses):
    image_uses = []
    monkeypatch.setattr(update, "select_copy_for_image", lambda _, *use: image_uses.append(use))
    copy = data_copies.Snapshot(4, 0.0, "webui@old", 1)
    monkeypatch.setattr(data_copies, "complete_copies", lambda paths: [copy])
    data_copies.save(spark.paths, data_copies.WebUiRecord(image="webui@old"))
    spark.finish_deploy()
    data_copies.save(spark.paths, data_copies.WebUiRecord(image="webui@new"))
    assert (spark.run(*words), image_uses) == (0, uses)


def test_a_return_is_refused_while_a_deploy_is_under_way(spark):
    spark.finish_deploy()
    under_way = pytest.raises(deploy_lock.DeployUnderWay)
    with deploy_lock.keep_deploys_away("deploy", spark.paths), under_way:
        spark.run("back")
    assert spark.file_state == AFTER


def test_a_host_whose_deploy_failed_returns_to_what_it_was_before_that(spark, capsys):
    generations.add_record(spark.paths, a_generation("zero", "0" * 16))
    generations.add_record(spark.paths, a_generation("one", OLD))
    generations.record_begun(spark.paths, a_generation("two", NEW, LAUNCHER))
    spark.deploy()
    # Without a mark: what the deploy began tells whose it is.
    spark.write(LAUNCHER, "new")
    # It runs with the older file already.
    assert (spark.run("back"), spark.hot, spark.file_state) == (0, ["qwen"], BEFORE)
    assert spark.newest[:2] == (2, "one") and "qwen" not in capsys.readouterr().out
    assert generations.begun_record(spark.paths) is None


def test_a_way_back_over_a_file_of_somebody_elses_is_refused_while_all_runs(spark):
    foreign_file = spark.write("/data/launch.sh")
    spark.finish_deploy("/data/launch.sh")
    foreign_file.write_text("#!/bin/sh\n# by hand, since\n")
    with pytest.raises(errors.Problem, match=r"not made by Lockstep: /data/launch.sh \(written "):
        spark.run("back")
    assert "/data/launch.sh" in rollback_journal.effects_of_return(spark.paths)["foreign"]
    assert (spark.hot, spark.file_state, spark.systemd.calls) == (["qwen"], AFTER, [])
    assert foreign_file.read_text().endswith("by hand, since\n")


def test_without_a_record_there_is_nothing_to_return_to(spark):
    generations.add_record(spark.paths, a_generation("one", OLD))
    with pytest.raises(errors.Problem, match="no record of a previous generation"):
        spark.run("back")
    assert spark.systemd.calls == []


def test_the_program_notes_what_it_is_told_to(spark, monkeypatch):
    request = {"paths": ["/etc/absent"], "rollout": "id"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(request)))
    spark.begin()
    assert spark.run("note") == 0
    document = rollback_journal.unfinished_journal(spark.paths)
    assert document["before"]["/etc/absent"] is None
    assert OLD in document["before"][QWEN_FILE]["text"]
    assert (document["points"], document["since"], document["rollout"]) == (OLD, 1, "id")


def test_a_member_of_a_cluster_restarts_and_returns_only_with_the_deploy(spark):
    spark.join_cluster("qwen", rank=1)
    spark.deploy()
    assert rollout.outdated_models(config.load_host(spark.paths.models), spark.paths) == []
    rollback_journal.note_before_change(spark.paths, rollout="id")
    assert (spark.run("return", WHY), spark.file_state) == (0, AFTER)
    assert spark.paths.begun_journal.exists()


def restart_model(spark: Spark) -> None:
    assert spark.run("go") == 0
    spark.has_key(NEW)


def test_a_host_that_is_done_returns_and_its_model_serves_again(spark, capsys):
    generations.add_record(spark.paths, a_generation("one", OLD))
    spark.deploy()
    restart_model(spark)
    assert spark.paths.begun_journal.exists()
    generations.add_record(spark.paths, a_generation("two", NEW))
    earlier_count = len(spark.systemd.calls)
    assert (spark.run("return", WHY), spark.hot, spark.file_state) == (0, ["qwen"], BEFORE)
    assert f"systemctl start -- {QWEN}" in spark.systemd.calls[earlier_count:]
    assert spark.newest == (3, "one", f"returned from generation 2: {WHY}")
    assert not spark.paths.begun_journal.exists()
    assert hot_change_under_way.load(spark.paths).rollout is None
    assert spark.run("return", WHY) == 0
    assert "nothing was kept here to return to" in capsys.readouterr().out


def test_a_model_that_was_not_restarted_yet_runs_on_and_one_that_was_stopped_is_hot_again(spark):
    spark.deploy()
    assert (spark.run("return", WHY), spark.hot, spark.file_state) == (0, ["qwen"], BEFORE)
    assert [call for call in spark.systemd.calls if QWEN in call] == []
    spark.deploy()
    spark.systemd.unit(QWEN)
    assert (spark.run("return", WHY), spark.hot) == (0, ["qwen"])


def test_a_model_that_does_not_serve_any_more_is_told(spark):
    spark.deploy()
    restart_model(spark)
    spark.systemd.unit(QWEN, **UP, MainPID="7", start_ok=False)
    assert spark.run("return", WHY) == errors.EXIT_NOTHING_HOT
    assert spark.file_state == BEFORE


def test_units_run_and_start_at_boot_as_before_and_new_ones_end(spark):
    gateway, brought_unit = (f"/etc/systemd/system/{name}" for name in (GATEWAY, BROUGHT))
    runs_at_boot = {**UP, "MainPID": "9", "UnitFileState": "enabled"}
    gateway_file = spark.write(gateway, unit_text(OLD))
    spark.systemd.unit(GATEWAY, **runs_at_boot)
    spark.has_key(NEW, pid=9)
    spark.deploy(gateway, brought_unit)
    # An earlier deploy's unit that this one has removed, and one that it has brought.
    gateway_file.unlink()
    spark.systemd.unit(GATEWAY)
    brought_file = spark.write(brought_unit)
    spark.systemd.unit(BROUGHT, **runs_at_boot)
    assert spark.run("return", WHY) == 0
    assert OLD in gateway_file.read_text() and not brought_file.exists()
    for call in (f"enable -- {GATEWAY}", f"disable --now -- {BROUGHT}", f"restart -- {GATEWAY}"):
        assert f"systemctl {call}" in spark.systemd.calls


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members that a deploy has given new units; it took the cluster down, which was hot."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        for spark in sparks:
            unit(spark).parent.mkdir(parents=True)
            unit(spark).write_text(unit_text(OLD))
            generations.add_record(spark.paths, a_generation(OLD, OLD, unit_file=GLM_FILE))
            rollback_journal.note_before_change(spark.paths, [GLM_FILE], rollout=ID)
            unit(spark).write_text(unit_text(NEW))
            generations.add_record(spark.paths, a_generation(NEW, NEW, unit_file=GLM_FILE))
        yield sparks


def unit(spark):
    return spark.paths.root / GLM_FILE.lstrip("/")


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
    assert code == 1 and "no token comes (spark1: no token: " in lines[-1]


def test_back_by_hand_ends_the_group_and_each_member_returns_for_itself(pair):
    pair[0].switch("glm")
    code, lines = pair[1].run("rollout.rollout", "back", "too slow")
    assert code == 4 and "glm stays down until all members of pair have returned" in lines[-1]
    assert member_states(pair) == [(NEW, NEW, []), (OLD, OLD, [])]
    assert pair[0].run("rollout.rollout", "back")[0] == 0
    assert pair[0].switch("glm")[0] == 0
    assert member_states(pair) == 2 * [(OLD, OLD, ["glm"])]


def test_what_another_deploy_kept_is_not_returned_to(pair):
    assert deploy_rollback.return_from_cluster_rollout(pair[0].paths, "another", "why") == 0
    assert member_states(pair)[0] == (NEW, NEW, [])
    assert rollback_journal.unfinished_journal(pair[0].paths)["rollout"] == ID
