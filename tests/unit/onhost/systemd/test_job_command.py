"""Long jobs: once per host, outliving their follower, with output, heartbeat and exit status."""

import os
import shlex
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from lab_servers import until
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, event_lines, layout
from lockstep.onhost.systemd import job_command, outdated_units, transient_job, units
from lockstep.onhost.systemd.outdated_units import GATEWAY


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr("lockstep.onhost.systemd.units.is_root", lambda: True)

    class Host:
        paths = layout.Paths(tmp_path / "root")
        systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)

        def __init__(self) -> None:
            #: The output of all runs.
            self.lines: list[str] = []
            monkeypatch.setattr(event_lines, "say", self.lines.append)

        def run(self, *argv: str) -> int:
            return job_command.main(["run", *argv], self.paths)

        def result(self, *argv: str) -> tuple[int, list[str]]:
            """Exit code and output of a run."""
            self.lines.clear()
            return self.run(*argv), self.lines

        def start_run(self, *argv: str) -> Future[int]:
            return threads.submit(self.run, *argv)

    with ThreadPoolExecutor() as threads:
        yield Host()


def work_until(gate: Path, beginning: str = "true", end: str = "true") -> tuple[str, ...]:
    """A command that runs until the file `gate` is there."""
    return "sh", "-c", f"{beginning}; while [ ! -e {gate} ]; do sleep 0.05; done; {end}"


def test_the_systemd_call_is_complete_and_carries_no_secret():
    work = transient_job.Job(
        "torch",
        ("uv", "pip", "install", "torch"),
        user="vllm",
        env_file="/etc/lockstep/build.env",
        properties=("Nice=5",),
        log=layout.Paths().log / "jobs/torch.log",
    )
    assert shlex.join(transient_job.systemd_run_command(work)) == (
        "systemd-run --quiet --no-ask-password --unit=lockstep-job-torch.service "
        f"'--description=lockstep job torch {work.fingerprint}' "
        "--setenv=LOCKSTEP_EVENTS=1 "
        "--property=Type=exec --property=RemainAfterExit=yes --property=OOMScoreAdjust=500 "
        "--property=StandardOutput=append:/var/log/lockstep/jobs/torch.log --property=Nice=5 "
        "--property=EnvironmentFile=/etc/lockstep/build.env --property=PrivateTmp=yes --uid=vllm "
        "-- uv pip install torch"
    )


@pytest.mark.parametrize(
    ("work", "code", "lines"),
    [
        # Options of the work.
        (["echo", "--uid", "--", "-x"], 0, ["--uid -- -x"]),
        # A bar that redraws itself.
        (["printf", "10%%\r20%%\r\n30%%\n"], 0, ["10%", "20%", "30%"]),
        (["sh", "-c", "printf end; exit 7"], 7, ["end", "exit-code, exit status 7"]),
        (["sh", "-c", "kill -9 $$"], 137, ["signal, killed by signal 9"]),
    ],
)
def test_output_comes_line_by_line_and_the_exit_status_is_the_works(host, work, code, lines):
    if code:
        log = f"{host.paths.log}/jobs/build.log"
        lines[-1] = f"job build: failed ({lines[-1]}); log: {log}"
    assert host.result("build", "--", *work) == (code, lines)


def test_a_unit_that_systemd_refuses_says_why(host):
    reason = "web.socket: Failed to create listening socket: Address already in use"
    host.systemd.unit("web.socket", start_ok=False, journal=[reason])
    code, lines = host.result("start-web", "--", "systemctl", "start", "web.socket")
    assert (code, lines[-2]) == (1, f"journal: {reason}")


def test_work_that_may_fail_is_tried_again_as_often_as_is_said(host, tmp_path):
    once = ("sh", "-c", f"[ -e {tmp_path}/seen ] && exit 0; touch {tmp_path}/seen; exit 7")
    assert host.run("listen", "--tries", "2", "--", *once) == 0
    assert host.run("listen", "--tries", "2", "--", "sh", "-c", "exit 7") == 7
    assert host.lines.count("job listen: tried again") == 2


def test_a_later_run_starts_again_and_the_failure_of_other_work_is_not_told(host):
    for work, result in ((["true"], (0, [])), (["echo", "other"], (0, ["other"]))):
        assert host.result("build", "--", *work) == result
        assert host.run("build", "--", "false") == 1


def has_line(host, words: str):
    return lambda: any(words in line for line in host.lines)


def test_the_same_work_is_attached_to_and_runs_once(host, tmp_path):
    gate, count = tmp_path / "go", tmp_path / "count"
    script = work_until(gate, f"echo started >> {count}", "echo done")
    first = host.start_run("b", "--", *script)
    until(count.exists, "it runs")
    second = host.start_run("b", "--", *script)
    until(has_line(host, "is running already"), "attached")
    gate.touch()
    assert [first.result(180), second.result(180)] == [0, 0]
    assert count.read_text() == "started\n"


def test_other_work_under_the_same_name_is_waited_for(host, tmp_path):
    gate, begin_mark = tmp_path / "go", tmp_path / "began"
    first = host.start_run("b", "--", *work_until(gate, f"touch {begin_mark}", "echo first"))
    until(begin_mark.exists, "it runs")
    second = host.start_run("b", "--", "echo", "second")
    until(has_line(host, "waiting for its end"), "it waits")
    gate.touch()
    wait([first, second], 180)
    assert host.lines[-2:] == ["first", "second"]


def test_a_job_outlives_a_follower_whose_connection_is_gone(host, tmp_path, monkeypatch):
    gate, end_mark = tmp_path / "go", tmp_path / "done"
    monkeypatch.setattr(event_lines, "has_lost_reader", lambda: True)
    assert host.run("b", "--", *work_until(gate, end=f"touch {end_mark}")) == 141
    gate.touch()
    until(end_mark.exists, "the work goes on")
    until(lambda: host.systemd.state("lockstep-job-b.service")["SubState"] == "exited", "ended")


def test_a_silent_job_gives_a_heartbeat(host, tmp_path):
    gate, lines = tmp_path / "go", []

    def say(line: str) -> None:
        lines.append(line)
        gate.touch()

    work = transient_job.Job("quiet", work_until(gate), log=host.paths.log / "jobs/quiet.log")
    transient_job.start_job(work, host.paths)
    assert transient_job.follow_job(work, False, say, heartbeat_s=0.2) == 0
    assert "job quiet: still running" in lines[0]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_job_that_is_stopped_or_whose_name_other_work_has_by_now_gives_143(
    host, tmp_path, monkeypatch, is_stopped
):
    monkeypatch.setattr(transient_job, "_STATE_S", 0.1)
    gate, begin_mark = tmp_path / "go", tmp_path / "began"
    run = host.start_run("b", "--", *work_until(gate, f"touch {begin_mark}"))
    until(begin_mark.exists, "it runs")
    if is_stopped:
        assert job_command.main(["stop", "b"], host.paths) == 0
    else:
        host.systemd.unit("lockstep-job-b.service", Description="lockstep job b of other work")
    # Its process lives on, as one that hangs in a driver does.
    assert run.result(180) == 143
    gate.touch()


def test_attach_tells_how_a_finished_job_ended(host):
    host.run("b", "--", "sh", "-c", "echo last words; exit 4")
    host.lines.clear()
    assert job_command.main(["attach", "b"], host.paths) == 4
    assert host.lines[0] == "last words"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "b", "--"], "nothing to run"),
        (["run", "../b", "--", "true"], "expected a-z, 0-9"),
        (["run", "b", "--setenv-file", "/none.env", "--", "true"], "/none.env does not exist"),
        (["attach", "b"], "not running"),
    ],
)
def test_wrong_use_is_explained(host, argv, words):
    with pytest.raises(errors.Problem, match=words):
        job_command.main(argv, host.paths)


def test_only_root_starts_jobs(host, monkeypatch):
    monkeypatch.setattr("lockstep.onhost.systemd.units.is_root", lambda: False)
    with pytest.raises(errors.Problem, match="only root") as problem:
        host.run("b", "--", "true")
    assert problem.value.code == 77


UP = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}


def root(folder: Path, *, file: str | None, runs: str | None) -> layout.Paths:
    """A host whose gateway has a file of one restart key and runs with another; None: neither."""
    paths = layout.Paths(folder / "root")
    unit = paths.root / "etc/systemd/system" / GATEWAY
    unit.parent.mkdir(parents=True)
    if file is not None:
        unit.write_text(f"[Service]\nEnvironment=LOCKSTEP_RESTART_KEY={file}\n")
    if runs:
        (paths.proc / "7").mkdir(parents=True)
        (paths.proc / "7/environ").write_text(f"A=b\0LOCKSTEP_RESTART_KEY={runs}\0")
    return paths


@pytest.mark.parametrize(
    ("file", "runs", "verb"),
    [
        ("aa", "aa", None),
        ("bb", "aa", "restart"),
        ("bb", None, "restart"),
        # A process that cannot be read counts as old.
        ("bb", "", "restart"),
        (None, "aa", "stop"),
    ],
)
def test_a_gateway_runs_with_its_file_or_not_at_all(systemd, tmp_path, file, runs, verb):
    systemd.unit(GATEWAY, **({} if runs is None else UP))
    outdated_units.bring_gateway_up_to_date(root(tmp_path, file=file, runs=runs))
    assert systemd.calls == ([f"systemctl {verb} -- {GATEWAY}"] if verb else [])


def test_a_stop_that_fails_is_said_and_a_unit_without_a_main_process_yet_is_read(
    systemd, tmp_path, capsys
):
    paths = root(tmp_path, file="aa", runs="aa")
    systemd.unit(GATEWAY, ActiveState="activating", MainPID="0", ControlPID="7")
    assert not outdated_units.has_outdated_key(units.units_by_name([GATEWAY])[GATEWAY], paths)
    (paths.root / "etc/systemd/system" / GATEWAY).unlink()
    systemd.unit(GATEWAY, **UP, stop_fails="it hangs")
    outdated_units.bring_gateway_up_to_date(paths)
    assert f"systemctl stop {GATEWAY} failed: it hangs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file_time", "entry_time", "verb"),
    [(100, 100, None), (100, None, "restart"), (102, 100, "restart"), (None, 100, "stop")],
)
def test_ports_are_opened_anew_where_their_file_is_newer(
    systemd, tmp_path, file_time, entry_time, verb
):
    paths, name = root(tmp_path, file="aa", runs="aa"), outdated_units.GATEWAY_SOCKET
    systemd.unit(GATEWAY, **UP)
    entry = {"ActiveState": "active", "ActiveEnterTimestamp": f"@{entry_time}"}
    # The service was started since: that opens nothing.
    systemd.unit(name, StateChangeTimestamp="@900", **(entry if entry_time else {}))
    if file_time is not None:
        file = paths.root / "etc/systemd/system" / name
        file.write_text("[Socket]\nListenStream=127.0.0.1:8090\n")
        os.utime(file, (file_time, file_time))
    outdated_units.bring_gateway_up_to_date(paths)
    assert systemd.calls == ([f"systemctl {verb} -- {name}"] if verb else [])


def test_a_template_has_no_state(systemd):
    systemd.unit("a.service", ActiveState="active")
    systemd.unit("b@.service")
    answer = units.units_by_name(["b@.service", "a.service"])
    assert [unit.active for unit in answer.values()] == ["inactive", "active"]
    assert units.units_by_name(["b@.service"])["b@.service"].load == "not-found"


def test_a_unit_without_an_answer_is_named(monkeypatch):
    monkeypatch.setattr(units, "_systemctl_output", lambda *words: "Id=a.service\n")
    with pytest.raises(errors.Problem, match=r"said nothing of b\.service"):
        units.units_by_name(["a.service", "b.service"])
