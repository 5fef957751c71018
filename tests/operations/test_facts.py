"""A host gets one question, and another after a change on it or after some time."""

from types import SimpleNamespace
from typing import Any

import pytest
from a_host import Host, deploying
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors import util as running
from pyinfra.connectors.util import CommandOutput, OutputLine

from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_report, ssh_connection

ASKED = {"units": ["vllm.service"], "weights": []}


def asked_all(host: Host) -> Host:
    with deploying(host):
        assert facts.ask_all_questions(host, ASKED)
    return host


def ask(host: Host, probe: str = "units") -> Any:
    with deploying(host):
        return facts.reader_answer(probe)


def test_every_command_of_an_operation_has_its_host_asked_again_and_no_other() -> None:
    host, other_host = (asked_all(Host({"units": 1, "weights": 2})) for _ in range(2))
    with deploying(host):
        commands = [
            remote_commands.changing_command(["true"]),
            remote_commands.write_files_command({"remove": []}),
            remote_commands.transient_job_command("weights", ["true"]),
        ]
    for number, command in enumerate(commands, 10):
        host.facts["units"] = number
        with deploying(host) as state:
            command.execute(state, host, {"_sudo": True})
        assert ask(host) == ask(host) == number
    # A reader that may wait is not asked again before somebody wants it.
    assert host.reader_names == ["units", "weights", "units", "units", "units"]
    assert ask(other_host) == 1 and other_host.reader_names == ["units", "weights"]


def test_what_operations_may_want_after_a_change_is_asked_by_one_command() -> None:
    every = {"preflight": {}, "units": [], "files": {}, "environments": {}, "weights": []}
    host = Host({"preflight": 0, "units": 1, "files": 2, "environments": 3, "weights": 4})
    with deploying(host) as state:
        assert facts.ask_all_questions(host, every)
        facts.drop_answers(host)
        host.facts["files"] = None
        assert [facts.reader_answer(probe) for probe in ("units", "environments")] == [1, 3]
        assert host.round_trips == 2
        # Nothing asks the one twice; the other may wait for a disk.
        assert host.reader_names[5:] == ["units", "files", "environments"]
        assert facts.reader_answer("weights") == 4 and host.round_trips == 3
        # One of them that cannot be read fails the host when it is wanted.
        failures: list[Any] = []
        state.fail_hosts = failures.append
        assert (facts.reader_answer("files"), failures) == (None, [{host}])


def test_what_is_asked_while_a_command_runs_does_not_outlive_it() -> None:
    host = asked_all(Host({"units": "before", "weights": {}}))

    class Slow(remote_commands.ChangingCommand):
        def send_to_host(self, state: Any, of: Any, arguments: Any) -> Any:
            host.facts["units"] = "meanwhile"
            assert facts.reader_answer("units") == "meanwhile"
            host.facts["units"] = "after"
            return True, None

    with deploying(host) as state:
        Slow("true").execute(state, host, {"_sudo": True})
    assert ask(host) == "after"


def test_a_host_that_waited_long_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(facts, "time", clock)
    host = asked_all(Host({"units": 1, "weights": 2}))
    clock.monotonic = lambda: 100.0 + facts.FRESH_S - 1
    assert ask(host) == 1 and len(host.reader_names) == 2
    clock.monotonic = lambda: 100.0 + facts.FRESH_S
    host.facts["units"] = 3
    assert ask(host) == 3 and host.reader_names[2:] == ["units"]


def test_another_question_is_asked_and_its_answer_not_taken_for_the_first_ones() -> None:
    host = asked_all(Host({"units": {"vllm.service": 1}, "weights": {}}))
    with deploying(host):
        facts.refreshed_answers({"units": ["old.service"]})
        host.facts["units"] = "the answer to the other one"
    assert ask(host) == {"vllm.service": 1}


def test_a_probe_that_fails_fails_its_host_when_it_is_wanted(caplog: pytest.LogCaptureFixture):
    host = Host({"units": None, "weights": {"b": 2}})
    failures: list[Any] = []
    with deploying(host) as state:
        state.fail_hosts = failures.append
        assert facts.ask_all_questions(host, ASKED)
        assert facts.reader_answer("weights") == {"b": 2} and not failures
        assert facts.reader_answer("units") is None
    assert failures == [{host}] and host.reader_names == ["units", "weights", "units"]
    assert "cannot read units: as the case says" in caplog.text
    # It may be able to at the next try.
    host.facts["units"] = 3
    assert ask(host) == 3


def test_a_host_that_does_not_answer_fails(caplog: pytest.LogCaptureFixture) -> None:
    host = Host({"units": 1, "weights": 2}, name="unanswering")
    failures: list[Any] = []

    def silent(*_: Any, **arguments: Any) -> Any:
        assert arguments["_timeout"] == facts.ANSWER_S
        raise TimeoutError("silent")

    with deploying(host) as state:
        state.fail_hosts = failures.append
        for answer in (lambda *_, **__: (False, CommandOutput([])), silent):
            host.run_shell_command = answer  # type: ignore[method-assign]
            assert not facts.ask_all_questions(host, ASKED)
    assert failures == [{host}, {host}]
    assert "cannot be asked" in caplog.text
    assert f"timed out after {facts.ANSWER_S}s" in caplog.text
    assert "Remedy: look there what hangs" in run_report.outcome_of_host("unanswering").reason


@pytest.mark.parametrize("active", [True, False])
def test_a_connection_that_is_lost_is_said_in_one_sentence_and_raises_in_no_greenlet(
    active: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host({"units": 1}, name=f"lost{active}")
    transport = SimpleNamespace(is_active=lambda: active)
    client = SimpleNamespace(get_transport=lambda: transport)
    host.connector = SimpleNamespace(client=client)  # type: ignore[attr-defined]
    host.run_shell_command = lambda *_, **__: (False, CommandOutput([]))  # type: ignore[method-assign]

    def the_last_one(hosts: Any) -> None:
        raise PyinfraError("No hosts remaining!")

    with deploying(host) as state:
        state.fail_hosts = the_last_one
        assert facts.reader_answer("units") is None
        # The run ends before the next operation.
        state.active_hosts = set()
        with pytest.raises(PyinfraError, match="No hosts remaining"):
            run_report._Watcher.operation_start(state, "next")
    outcome = run_report.outcome_of_host(host.name)
    message = (
        f"connection lost to {host.name} while it was at: Write units; run the same command again"
    )
    assert (outcome.failed_at, outcome.reason) == ("Write units", "" if active else message)
    assert (message in caplog.text) is not active


def test_who_cannot_be_asked_for_sudos_password_is_told_what_to_do(monkeypatch, capsys, caplog):
    monkeypatch.setattr(running, "getpass", running.getpass)
    original_prompt = running.getpass
    # Where there is a terminal, pyinfra asks.
    monkeypatch.setattr(ssh_connection, "_TERMINAL", "/dev/null")
    ssh_connection.refuse_prompt_without_terminal()
    assert running.getpass is original_prompt
    monkeypatch.setattr(ssh_connection, "_TERMINAL", "/nonexistent/tty")
    ssh_connection.refuse_prompt_without_terminal()
    host = Host({})
    sudo_output = CommandOutput([OutputLine("stderr", "sudo: a password is required")])
    host.run_shell_command = lambda *_, **__: running.execute_command_with_sudo_retry(
        host, {}, lambda: (1, sudo_output)
    )
    with deploying(host):
        assert not facts.ask_all_questions(host, ASKED)
    reason = run_report.outcome_of_host(host.name).reason
    assert reason.startswith("sudo: a password is required") and "Remedy: " in reason
    assert reason in caplog.text and "Traceback" not in caplog.text
    assert "assword" not in capsys.readouterr().err.replace(reason, "")
