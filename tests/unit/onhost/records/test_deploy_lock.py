"""The lock of a deploy: whose it is, how it ends, and what it tells the journal."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from dataclasses import asdict
from functools import partial

import pytest

from lockstep.onhost.core import errors, file_lock, runner
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.records import deploy_lock
from lockstep.onhost.records.deploy_lock import Deploy
from lockstep.onhost.systemd.units import Unit

MINE = Deploy("run1", "anna", "laptop", "deploy of spark", 1000.0)
YOUNGER = Deploy("run2", "ben", "desktop", "rollback of spark", 1000.5)
JOURNAL_PREFIX = "anna from laptop: deploy of spark: "
pytestmark = pytest.mark.usefixtures("systemd")


@pytest.fixture
def journal(paths, monkeypatch) -> list[str]:
    """The lines in the journal of a host in a folder."""
    lines: list[str] = []
    monkeypatch.setattr("syslog.syslog", lambda _, line: lines.append(line))
    monkeypatch.setattr(deploy_lock.layout, "Paths", lambda: paths)
    return lines


@pytest.fixture
def path(paths):
    return paths.deploy_lock


def speak(*lines: str, deploy: Deploy = MINE, meanwhile=lambda: None, **more: object):
    """Let a deploy hold the lock while it sends these lines, after something has been done."""

    def messages():
        meanwhile()
        yield from lines

    return deploy_lock.answer_request({**asdict(deploy), **more}, messages())


def take_lock(path, deploy: Deploy) -> contextlib.ExitStack:
    """Let another deploy have the lock, in a file of its own, until this is closed."""
    stack = contextlib.ExitStack()
    fcntl.flock(stack.enter_context(file_lock.open_file(path)), fcntl.LOCK_EX)
    stack.enter_context(file_lock.note_holder(path, asdict(deploy), mode=0o600))
    return stack


def test_the_lock_is_held_while_the_deploy_speaks_and_told_line_by_line(journal, path):
    def look() -> None:
        assert deploy_lock.lock_holder(path) == MINE
        assert deploy_lock.other_lock_holder(MINE, path) is None
        assert path.stat().st_mode & 0o777 == 0o600

    speak("changed Base | Apply settings\n", "\n", "ended done\n", meanwhile=look)
    assert deploy_lock.lock_holder(path) is None and not path.with_suffix(".json").exists()
    lines = ["changed Base | Apply settings", "done"]
    assert journal == [JOURNAL_PREFIX + line for line in lines]


def test_silence_ends_it(journal, path, monkeypatch):
    monkeypatch.setattr(deploy_lock, "SILENCE_S", 1)
    # Ended by the alarm; without one this test fails and does not wait for ever.
    speak("changed what nobody hears", meanwhile=lambda: time.sleep(5))
    assert deploy_lock.lock_holder(path) is None
    assert journal == [f"{JOURNAL_PREFIX}nothing heard for 1 s"]


@pytest.mark.parametrize(
    ("end", "expected_commands", "lines"),
    [
        ("ended done", ["systemctl reset-failed -- lockstep-job-*"], ["done"]),
        # It only tried.
        ("ended ", [], []),
        ("", [], ["cut off"]),
    ],
)
def test_an_end_is_told_and_clears_failed_jobs_after_a_deploy_that_did_all(
    journal, systemd, end, expected_commands, lines
):
    speak(f"{end}\n")
    assert systemd.calls == expected_commands
    assert journal == [JOURNAL_PREFIX + line for line in lines]


def test_the_younger_gives_up_at_once_and_is_told_for_whom(journal, path, monkeypatch):
    monkeypatch.setattr(deploy_lock.time, "sleep", lambda _: pytest.fail("it waits"))
    monkeypatch.setattr(deploy_lock, "_COMING_S", 0.0)
    busy = take_lock(path, MINE)
    with pytest.raises(SystemExit) as error:
        speak(deploy=YOUNGER)
    assert error.value.code == errors.EXIT_LOCKED and journal == []
    assert deploy_lock.other_lock_holder(YOUNGER, path) == MINE
    assert deploy_lock.lock_holder(path) == MINE
    busy.close()
    other_deploy = deploy_records.other_and_cut_off_deploy(asdict(YOUNGER))["other"]
    assert other_deploy.startswith("anna from laptop: deploy of spark, since ")
    # It tries again, and nobody is in its way.
    holders = []
    look = partial(deploy_lock.other_lock_holder, YOUNGER, path)
    speak("ended done", deploy=YOUNGER, meanwhile=lambda: holders.append(look()))
    assert holders == [None]
    with pytest.raises(errors.Problem, match="was not taken"):
        deploy_lock.other_lock_holder(YOUNGER, path)


def test_the_elder_waits_until_the_younger_has_given_up(journal, path, monkeypatch):
    answers = []

    def ask() -> None:
        answers.append(deploy_records.other_and_cut_off_deploy(asdict(MINE)))

    elder_thread = threading.Thread(target=ask)
    busy, sleep = take_lock(path, YOUNGER), deploy_lock.time.sleep

    def wait(seconds: float) -> None:
        # The other one ends when the host has seen it, and waits.
        if threading.current_thread() is elder_thread:
            busy.close()
        sleep(seconds)

    monkeypatch.setattr(deploy_lock.time, "sleep", wait)
    elder_thread.start()
    speak("ended done", meanwhile=lambda: (elder_thread.join(), ask()))
    assert [(answer["waited"], answer["other"]) for answer in answers] == [(True, ""), (False, "")]
    assert journal == [f"{JOURNAL_PREFIX}done"]


def test_the_elder_does_not_wait_for_ever(journal, path, monkeypatch):
    monkeypatch.setattr(deploy_lock, "PATIENCE_S", 0.2)
    with take_lock(path, YOUNGER):
        with pytest.raises(SystemExit):
            speak()
        assert deploy_lock.other_lock_holder(MINE, path) == YOUNGER


def test_a_deploy_that_ended_in_an_exception_is_in_nobodys_way(journal, path, monkeypatch):
    """The record claimed that the deploy still ran, and each reading took the lock for a moment."""
    with pytest.raises(KeyError), deploy_lock.hold_lock(MINE, path):
        raise KeyError
    assert deploy_lock.lock_holder(path) is None
    look = file_lock.open_file(path)
    fcntl.flock(look, fcntl.LOCK_SH)
    tries = []

    def sleep(seconds: float) -> None:
        tries.append(seconds)
        look.close()

    monkeypatch.setattr(deploy_lock.time, "sleep", sleep)
    speak("ended done", deploy=YOUNGER)
    assert len(tries) == 1, "it tried again, and did not give up for one that has ended"


@pytest.fixture
def returns(path, monkeypatch, journal) -> dict:
    """The state of a rollout's job, the end of a return, and "asked": the commands that return."""
    state = {"sub": "exited", "code": 0, "asked": []}
    run_program = runner.run

    def run(argv, *limits: float, **_: object):
        if argv[0] == "systemctl":
            return run_program(argv, *limits)
        state["asked"].append(argv)
        assert deploy_lock.lock_holder(path) == MINE, "nobody else begins meanwhile"
        return subprocess.CompletedProcess(argv, state["code"], "qwen is hot again\n", "")

    def units_by_name(names):
        return {name: Unit(name, active="active", sub=state["sub"]) for name in names}

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(deploy_lock.units, "units_by_name", units_by_name)
    return state


def write_journal(paths, **more: object) -> None:
    document = {"since": 1, "before": {}, "current": None, "points": None, "units": {}}
    document |= {"hot": None, "webui": "", "rollout": "", **more}
    paths.begun_journal.parent.mkdir(parents=True, exist_ok=True)
    paths.begun_journal.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("deploy_output", "how", "code", "outcome"),
    [
        ([], "cut off", 0, "this host returned to what it was before"),
        (["ended failed at X"], "failed at X", 0, "this host returned to what it was before"),
        ([], "cut off", 4, "this host could not return, /var/log/lockstep/jobs/rollout.log says"),
    ],
)
def test_a_host_between_two_generations_returns_and_the_next_deploy_is_told(
    returns, journal, paths, deploy_output, how, code, outcome, capsys
):
    write_journal(paths)
    returns["code"] = code
    answer = speak("changed Services", *deploy_output)
    (command,) = returns["asked"]
    assert command[-3:] == ["rollout", "return", f"deploy of spark of anna: {how}"]
    assert journal[-1].startswith(f"{JOURNAL_PREFIX}{how}; {outcome}")
    told_outcome = deploy_lock.cut_off_deploy_outcome(paths)
    assert told_outcome.startswith(f"deploy of spark of anna: {how}; {outcome}")
    assert answer == {"returned": code == 0, "said": "qwen is hot again\n"}
    assert capsys.readouterr().out == "", "the answer alone is printed, by who runs this"
    assert speak("ended done") is None
    assert deploy_lock.cut_off_deploy_outcome(paths) == ""


@pytest.mark.parametrize(
    ("more", "whole", "sub", "deploy_output", "times"),
    [
        ({}, False, "running", "changed Services", 0),
        ({}, True, "running", "changed Services", 1),
        ({"rollout": "id"}, True, "exited", "changed Services", 0),
        ({}, False, "exited", "ended refused", 0),
    ],
    ids=["a restart ends by itself", "but not with all", "a cluster", "nothing was changed"],
)
def test_a_host_returns_only_where_nothing_else_brings_it_back(
    returns, paths, more, whole, sub, deploy_output, times
):
    write_journal(paths, **more)
    returns["sub"] = sub
    speak(deploy_output, whole=whole)
    assert len(returns["asked"]) == times


def test_the_way_back_waits_for_what_a_killed_deploy_still_writes(returns, paths, monkeypatch):
    scope = "0::/user.slice/user-1000.slice/session-7.scope\n"
    command_line = "/usr/bin/python3\0-I\0-c\0import json\0"

    def let_run(pid: str, group: str = scope, command: str = command_line) -> None:
        (paths.proc / pid).mkdir(parents=True)
        (paths.proc / pid / "cgroup").write_text(group)
        (paths.proc / pid / "cmdline").write_text(command)

    for pid in ("self", str(os.getpid()), "41"):
        let_run(pid)
    let_run("42", command="sudo\0-n\0")
    let_run("43", group=scope.replace("7", "8"))
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            shutil.rmtree(paths.proc / "41")
            # The journal is read after the wait.
            write_journal(paths)

    monkeypatch.setattr(deploy_lock.clock, "sleep", sleep)
    speak("changed Services")
    assert (len(pauses), len(returns["asked"])) == (3, 1)
    # One that never ends is not waited for for ever, and none after a deploy that ended well.
    let_run("41")
    times = iter(range(0, 100, 10))  # Seconds.
    monkeypatch.setattr(deploy_lock.clock, "now", lambda: float(next(times)))
    speak("changed Services")
    assert len(pauses) == 5
    speak("changed Services", "ended done")
    assert len(pauses) == 5
