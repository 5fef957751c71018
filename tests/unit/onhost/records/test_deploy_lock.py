"""The lock of a deploy: whose it is, how it ends, and what it tells the journal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, file_lock, runner
from lockstep.onhost.core.layout import Paths
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.records import deploy_lock
from lockstep.onhost.records.deploy_lock import Deploy
from lockstep.onhost.systemd.units import Unit

MINE = Deploy("run1", "anna", "laptop", "deploy of spark", 1000.0)
YOUNGER = Deploy("run2", "ben", "desktop", "rollback of spark", 1000.5)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines in the journal of a host in a folder."""
    lines: list[str] = []
    monkeypatch.setattr("syslog.syslog", lambda _, line: lines.append(line))
    monkeypatch.setattr(deploy_lock.layout, "Paths", lambda: Paths(tmp_path))
    return lines


@pytest.fixture(autouse=True)
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Paths(tmp_path).deploy_lock


class Busy:
    """Another deploy that has the lock, in a file of its own as in a process of its own."""

    def __init__(self, path: Path, deploy: Deploy) -> None:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(file_lock.open_file(path))
            fcntl.flock(file, fcntl.LOCK_EX)
            stack.enter_context(file_lock.note_holder(path, asdict(deploy), mode=0o600))
            self.end = stack.pop_all().close


def test_it_is_held_while_the_deploy_speaks_and_told_line_by_line(
    journal: list[str], path: Path
) -> None:
    def deploy_lines() -> Iterator[str]:
        assert deploy_lock.lock_holder(path) == MINE
        assert deploy_lock.other_lock_holder(MINE, path) is None
        assert path.stat().st_mode & 0o777 == 0o600
        yield "changed Base | Apply kernel settings\n"
        yield "\n"
        yield "ended done\n"

    deploy_lock.answer_request(asdict(MINE), deploy_lines())
    assert deploy_lock.lock_holder(path) is None and not path.with_suffix(".json").exists()
    assert journal == [
        "anna from laptop: deploy of spark: changed Base | Apply kernel settings",
        "anna from laptop: deploy of spark: done",
    ]


@pytest.mark.parametrize(
    ("end", "expected_commands", "lines"),
    [
        ("ended done", ["systemctl reset-failed -- lockstep-job-*"], ["done"]),
        ("ended failed at Base", [], ["failed at Base"]),
        # It only tried.
        ("ended ", [], []),
        ("", [], ["cut off"]),
    ],
)
def test_its_end_is_told_and_a_failed_job_is_forgotten_after_one_that_did_all(
    journal: list[str],
    systemd: FakeSystemd,
    end: str,
    expected_commands: list[str],
    lines: list[str],
) -> None:
    deploy_lock.answer_request(asdict(MINE), iter([f"{end}\n"]))
    assert systemd.calls == expected_commands
    assert journal == [f"anna from laptop: deploy of spark: {line}" for line in lines]


def test_silence_ends_it(journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lock, "SILENCE_S", 1)

    def deploy_lines() -> Iterator[str]:
        # Ended by the alarm; without one this test fails and does not wait for ever.
        time.sleep(5)
        yield "changed what nobody hears"

    deploy_lock.answer_request(asdict(MINE), deploy_lines())
    assert deploy_lock.lock_holder(path) is None
    assert journal == ["anna from laptop: deploy of spark: nothing heard for 1 s"]


def test_the_younger_gives_up_at_once(
    journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_lock.time, "sleep", lambda _: pytest.fail("it waits"))
    busy = Busy(path, MINE)
    with pytest.raises(SystemExit) as error:
        deploy_lock.answer_request(asdict(YOUNGER), iter(()))
    assert error.value.code == errors.EXIT_LOCKED and journal == []
    assert deploy_lock.other_lock_holder(YOUNGER, path) == MINE
    assert deploy_lock.lock_holder(path) == MINE
    busy.end()


def test_one_that_gave_up_is_told_for_whom_also_where_that_one_has_ended_since(
    journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_lock, "_COMING_S", 0.0)
    busy = Busy(path, MINE)
    with pytest.raises(SystemExit):
        deploy_lock.answer_request(asdict(YOUNGER), iter(()))
    busy.end()
    other_deploy = deploy_records.other_and_cut_off_deploy(asdict(YOUNGER))["other"]
    assert other_deploy.startswith("anna from laptop: deploy of spark, since ")
    # It tries again, and nobody is in its way.

    def deploy_lines() -> Iterator[str]:
        assert deploy_lock.other_lock_holder(YOUNGER, path) is None
        yield "ended done"

    deploy_lock.answer_request(asdict(YOUNGER), deploy_lines())
    with pytest.raises(errors.Problem, match="was not taken"):
        deploy_lock.other_lock_holder(YOUNGER, path)


def test_the_elder_waits_until_the_younger_has_given_up(journal: list[str], path: Path) -> None:
    busy = Busy(path, YOUNGER)
    waiting = threading.Timer(0.3, busy.end)
    waiting.start()
    elder_thread = threading.Thread(
        target=lambda: answers.append(deploy_lock.other_lock_holder(MINE, path))
    )
    answers: list[Deploy | str | None] = []
    elder_thread.start()

    def deploy_lines() -> Iterator[str]:
        elder_thread.join()
        yield "ended done"

    deploy_lock.answer_request(asdict(MINE), deploy_lines())
    assert answers == [None]
    assert journal == ["anna from laptop: deploy of spark: done"]


def test_a_host_says_that_another_deploy_ran_when_it_was_asked(
    journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, Any]] = []
    elder_thread = threading.Thread(
        target=lambda: answers.append(deploy_records.other_and_cut_off_deploy(asdict(MINE)))
    )

    def deploy_lines() -> Iterator[str]:
        elder_thread.join()
        answers.append(deploy_records.other_and_cut_off_deploy(asdict(MINE)))
        yield "ended done"

    busy, sleep = Busy(path, YOUNGER), deploy_lock.time.sleep

    def wait(seconds: float) -> None:
        # The other one ends when the host has seen it, and waits.
        if threading.current_thread() is elder_thread:
            busy.end()
        sleep(seconds)

    monkeypatch.setattr(deploy_lock.time, "sleep", wait)
    elder_thread.start()
    deploy_lock.answer_request(asdict(MINE), deploy_lines())
    assert [answer["waited"] for answer in answers] == [True, False]
    assert [answer["other"] for answer in answers] == ["", ""]


def test_but_not_for_ever(journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lock, "PATIENCE_S", 0.2)
    busy = Busy(path, YOUNGER)
    with pytest.raises(SystemExit):
        deploy_lock.answer_request(asdict(MINE), iter(()))
    assert deploy_lock.other_lock_holder(MINE, path) == YOUNGER
    busy.end()


def test_one_that_ended_in_an_exception_is_in_nobodys_way(
    journal: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record claimed that the deploy still ran, and each reading took the lock for a moment."""
    with pytest.raises(KeyError), deploy_lock.hold_lock(MINE, path):
        raise KeyError
    assert deploy_lock.lock_holder(path) is None
    look = file_lock.open_file(path)
    fcntl.flock(look, fcntl.LOCK_SH)
    tries: list[float] = []

    def sleep(seconds: float) -> None:
        tries.append(seconds)
        look.close()

    monkeypatch.setattr(deploy_lock.time, "sleep", sleep)
    deploy_lock.answer_request(asdict(YOUNGER), iter(["ended done"]))
    assert len(tries) == 1, "it tried again, and did not give up for one that has ended"


def test_a_lock_that_nobody_took_is_a_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lock, "_COMING_S", 0.1)
    with pytest.raises(errors.Problem, match="was not taken"):
        deploy_lock.other_lock_holder(MINE, path)


@pytest.fixture
def returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: list[str]) -> dict[str, Any]:
    """The state of a rollout's job, the end of a return, and "asked": the commands that return."""
    unit_state: dict[str, Any] = {"sub": "exited", "code": 0, "asked": []}

    run_program = runner.run

    def run(argv: list[str], *limits: float, **_: object) -> subprocess.CompletedProcess[str]:
        if argv[0] == "systemctl":
            return run_program(argv, *limits)
        unit_state["asked"].append(argv)
        assert deploy_lock.lock_holder(Paths(tmp_path).deploy_lock) == MINE, (
            "nobody else begins meanwhile"
        )
        return subprocess.CompletedProcess(argv, unit_state["code"], "qwen is hot again\n", "")

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(
        deploy_lock.units,
        "units_by_name",
        lambda names: {name: Unit(name, active="active", sub=unit_state["sub"]) for name in names},
    )
    return unit_state


def write_journal(tmp_path: Path, **more: object) -> None:
    document = {"since": 1, "before": {}, "current": None, "points": None, "units": {}}
    document |= {"hot": None, "webui": "", "rollout": "", **more}
    target_path = Paths(tmp_path).begun_journal
    target_path.parent.mkdir(parents=True, exist_ok=True)
    target_path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("deploy_output", "how"), [([], "cut off"), (["ended failed at X"], "failed at X")]
)
def test_a_host_between_two_generations_returns_and_the_next_deploy_is_told(
    returns: dict[str, Any],
    journal: list[str],
    tmp_path: Path,
    deploy_output: list[str],
    how: str,
    capsys: Any,
) -> None:
    write_journal(tmp_path)
    answer = deploy_lock.answer_request(asdict(MINE), iter(["changed Services", *deploy_output]))
    (command,) = returns["asked"]
    assert command[-3:] == ["rollout", "return", f"deploy of spark of anna: {how}"]
    end_message = f"{how}; this host returned to what it was before"
    assert journal[-1] == f"anna from laptop: deploy of spark: {end_message}"
    assert (
        deploy_lock.cut_off_deploy_outcome(Paths(tmp_path))
        == f"deploy of spark of anna: {end_message}"
    )
    assert answer == {"returned": True, "said": "qwen is hot again\n"}
    assert capsys.readouterr().out == "", "the answer alone is printed, by who runs this"
    assert deploy_lock.answer_request(asdict(MINE), iter(["ended done"])) is None
    assert deploy_lock.cut_off_deploy_outcome(Paths(tmp_path)) == ""


def test_a_return_that_fails_is_told_with_the_place_of_its_log(
    returns: dict[str, Any], journal: list[str], tmp_path: Path
) -> None:
    write_journal(tmp_path)
    returns["code"] = 4
    deploy_lock.answer_request(asdict(MINE), iter(["changed Services"]))
    assert journal[-1].endswith(
        "cut off; this host could not return, /var/log/lockstep/jobs/rollout.log says why"
    )


@pytest.mark.parametrize(
    ("more", "whole", "sub", "deploy_output", "times"),
    [
        ({}, False, "running", ["changed Services"], 0),
        ({}, True, "running", ["changed Services"], 1),
        ({"rollout": "id"}, True, "exited", ["changed Services"], 0),
        ({}, False, "exited", ["ended refused"], 0),
    ],
    ids=["a restart ends by itself", "but not with all", "a cluster", "nothing was changed"],
)
def test_when_a_host_returns(
    returns: dict[str, Any],
    tmp_path: Path,
    more: Any,
    whole: bool,
    sub: str,
    deploy_output: list[str],
    times: int,
) -> None:
    write_journal(tmp_path, **more)
    returns["sub"] = sub
    deploy_lock.answer_request({**asdict(MINE), "whole": whole}, iter(deploy_output))
    assert len(returns["asked"]) == times


def test_the_way_back_waits_for_what_a_killed_deploy_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = "0::/user.slice/user-1000.slice/session-7.scope\n"
    command_line = "/usr/bin/python3\0-I\0-c\0import json\0"
    for pid, group, command in (
        ("self", scope, command_line),
        (str(os.getpid()), scope, command_line),
        ("41", scope, command_line),
        ("42", scope, "sudo\0-n\0"),
        ("43", scope.replace("7", "8"), command_line),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(group)
        (tmp_path / pid / "cmdline").write_text(command)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            shutil.rmtree(tmp_path / "41")

    monkeypatch.setattr(deploy_lock.clock, "sleep", sleep)
    deploy_lock._wait_for_sent_programs(tmp_path)
    assert len(pauses) == 3
    # One that never ends is not waited for for ever.
    shutil.copytree(tmp_path / "43", tmp_path / "41")
    (tmp_path / "41/cgroup").write_text(scope)
    times = iter(range(0, 100, 10))  # Seconds.
    monkeypatch.setattr(deploy_lock.clock, "now", lambda: float(next(times)))
    deploy_lock._wait_for_sent_programs(tmp_path)
    assert len(pauses) == 5


def test_the_journal_is_read_after_that_wait(
    journal: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def record(step: str) -> bool:
        order.append(step)
        return False

    monkeypatch.setattr(deploy_lock, "_wait_for_sent_programs", lambda _: record("wait"))
    monkeypatch.setattr(deploy_lock, "_is_between_generations", lambda *_: record("read"))
    deploy_lock.answer_request(asdict(MINE), iter(["changed Services"]))
    assert order == ["wait", "read"]
    deploy_lock.answer_request(asdict(MINE), iter(["changed Services", "ended done"]))
    assert order == ["wait", "read"], "a deploy that ended well has nothing under way"
