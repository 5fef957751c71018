"""The memory minimum: an engine is ended below it, is not started again, and gives way to
another."""

import signal
from functools import partial

import pytest
from a_clock import Clock
from a_model import about
from a_model_host import ModelHost
from onhost_fakes import put_in_container, write_meminfo

from lockstep.onhost.core import errors, switch_lock
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import memory_watch

UNIT = "vllm-qwen36.service"
QWEN = about(
    **{"unit": UNIT, "container": "vllm-qwen36", "engine": "vllm"},
    **{"minimum_loading_gib": 8.0, "minimum_serving_gib": 4.0},
)
MISTRAL = {**QWEN, "unit": "vllm.service", "container": None, "minimum_loading_gib": 20.0}
FIRST_PID = 4711
STOP = f"systemctl stop --no-block -- {UNIT}"
REST = [f"systemctl kill --signal=KILL -- {UNIT}", f"systemctl stop -- {UNIT}"]
KILLED = [f"kill {FIRST_PID}", STOP, *REST]
HOT = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}
LOADING = {"ActiveState": "activating", "SubState": "start-post", "MainPID": "7"}


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host with 100 GiB available whose qwen is hot."""

    class Spark(ModelHost):
        def __init__(self) -> None:
            super().__init__(tmp_path, monkeypatch, {"qwen": QWEN, "mistral": MISTRAL})
            self.ended_models: list[str] = []
            self.minimum = memory_watch.MemoryWatch(self.paths, self.fall_back)
            self.docker.containers["vllm-qwen36"] = "vllm@sha256:aa"
            self.docker.pids["vllm-qwen36"] = FIRST_PID
            self.systemd.unit(UNIT, **HOT)
            for name in ("kill", "killpg"):
                monkeypatch.setattr(memory_watch.os, name, partial(self.note_kill, name))

        def fall_back(self, name: str, _) -> None:
            self.ended_models.append(name)

        def note_kill(self, name: str, pid: int, number: int) -> None:
            assert number == signal.SIGKILL
            with (self.systemd.folder / "calls").open("a") as file:
                file.write(f"{name} {pid}\n")

        def step(self, available: float) -> float:
            write_meminfo(self.paths, available)
            return self.minimum.check_memory()

    spark = Spark()
    yield spark
    spark.close()


GATE = {**LOADING, "SubState": "start-pre", "MainPID": "0"}
STOPPING = {**HOT, "ActiveState": "deactivating", "SubState": "stop-sigterm"}


@pytest.mark.parametrize(
    ("state", "available"),
    # Its gate waits until the engine before it has given its memory back.
    [(HOT, 4.1), (LOADING, 8.1), (GATE, 3.0), (STOPPING, 3.0), ({"ActiveState": "inactive"}, 3.0)],
)
def test_an_engine_above_the_minimum_of_its_phase_runs_on(spark, state, available):
    spark.systemd.unit(UNIT, **state)
    spark.step(available)
    assert (spark.systemd.calls, spark.ended_models) == ([], [])
    assert watch_findings.load(spark.paths).kills == {}


@pytest.mark.parametrize(
    ("state", "available", "phase", "least"),
    [(HOT, 3.9, "serving", 4.0), (LOADING, 7.9, "loading", 8.0)],
)
def test_an_engine_below_its_minimum_is_ended(spark, capsys, state, available, phase, least):
    spark.systemd.unit(UNIT, **state)
    # Others' containers are not its.
    put_in_container(spark.paths, "vllm", 4712)
    put_in_container(spark.paths, "vllm-qwen36-fallback", 4713)
    spark.step(available)
    assert (spark.systemd.calls, spark.ended_models) == (KILLED, ["qwen"])
    [kill] = watch_findings.load(spark.paths).kills.values()
    assert (kill.unit, kill.phase) == (UNIT, phase)
    message = f"{phase}: {available} GiB available, below the minimum of {least} GiB"
    assert f"qwen: the memory watch ended it while {message}" in capsys.readouterr().out


def test_an_engine_without_a_container_is_killed_with_its_whole_group(spark):
    """A signal to process 0, of a container that does not run, would end the watch itself."""
    spark.docker.pids.clear()
    spark.step(3.0)
    assert spark.systemd.calls == [STOP, *REST]
    spark.tell("qwen", container=None)
    spark.systemd.unit(UNIT, **HOT)
    spark.step(3.0)
    assert spark.systemd.calls[3:] == [f"killpg {HOT['MainPID']}", STOP, *REST]


@pytest.mark.parametrize(
    ("fault", "is_told"), [(ProcessLookupError, False), (PermissionError, True)]
)
def test_an_engine_that_is_not_killed_is_stopped(spark, monkeypatch, capsys, fault, is_told):
    def refuse(*_: object) -> None:
        raise fault(1, "Operation not permitted")

    monkeypatch.setattr(memory_watch.os, "kill", refuse)
    spark.step(3.0)
    assert spark.systemd.calls == [STOP, *REST]
    assert (f"process {FIRST_PID} not killed: " in capsys.readouterr().out) is is_told


def test_an_engine_in_a_container_is_ended_before_a_docker_that_hangs_is_asked(spark, monkeypatch):
    """Every process of it, the first of which ends the others."""
    docker = memory_watch.docker_api.Docker
    monkeypatch.setattr(docker, "container", lambda *_: pytest.fail("Docker was asked"))
    put_in_container(spark.paths, "vllm-qwen36", 4712, 4713)
    spark.step(3.0)
    assert spark.systemd.calls == ["kill 4712", "kill 4713", STOP, *REST]


def test_the_nearer_the_minimum_the_sooner_it_looks_again(spark):
    assert spark.step(100.0) == 0.25
    assert spark.step(21.0) == pytest.approx(0.1, abs=0.01)
    assert spark.step(20.1) == 0.05
    # Below the highest minimum of all, with an engine up whose own is not reached.
    assert spark.step(10.0) == 0.05
    # No engine is up, whatever holds the memory: nothing is there to be ended.
    spark.systemd.unit(UNIT)
    assert spark.step(3.0) == 0.25


def test_memory_that_has_come_back_meanwhile_ends_nothing(spark, monkeypatch):
    show_units = memory_watch.units.units_by_name

    def show(names):
        write_meminfo(spark.paths, 30.0)
        return show_units(names)

    monkeypatch.setattr(memory_watch.units, "units_by_name", show)
    spark.step(3.0)
    assert spark.systemd.calls == []


def test_what_follows_is_left_to_who_was_switching_and_on_a_cluster_to_its_agents(spark, capsys):
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        spark.step(3.0)
    assert (spark.systemd.calls, spark.ended_models) == (KILLED, [])
    assert "left to who was switching: anna is switching to qwen" in capsys.readouterr().out
    spark.join_cluster("qwen")
    spark.systemd.unit(UNIT, **HOT)
    spark.step(3.0)
    assert (spark.systemd.calls, spark.ended_models) == (KILLED * 2, [])


def test_a_deploy_s_new_minimum_holds_at_once_and_0_is_none(spark):
    spark.step(5.0)
    assert spark.systemd.calls == []
    spark.tell("qwen", minimum_serving_gib=6)
    spark.step(5.0)
    assert spark.systemd.calls == KILLED
    spark.systemd.unit(UNIT, **HOT)
    spark.tell("qwen", minimum_serving_gib=0.0)
    spark.step(0.0)
    assert spark.systemd.calls == KILLED


def test_an_engine_is_ended_though_docker_is_dead_and_nothing_takes_its_place(spark, capsys):
    def refuse(*_: object) -> None:
        raise errors.Problem("no systemd-run")

    spark.docker.close()
    spark.minimum.fall_back = refuse
    spark.step(3.0)
    assert spark.systemd.calls == [STOP, *REST]
    output = capsys.readouterr().out
    assert "container vllm-qwen36 not killed: " in output
    assert "nothing started in its place: no systemd-run" in output


def test_the_program_outlives_a_look_that_fails(spark, monkeypatch, capsys):
    (spark.paths.proc / "meminfo").unlink()
    rests: list[float] = []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            raise KeyboardInterrupt

    Clock(monkeypatch).asleep = sleep
    with pytest.raises(KeyboardInterrupt):
        memory_watch.main([], spark.paths)
    assert rests == [0.25, 0.25, 0.25]
    assert capsys.readouterr().out.count("No such file") == 1
