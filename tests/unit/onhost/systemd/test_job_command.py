"""Long jobs: once per host, outliving their follower, with output, heartbeat and exit status."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from lab_servers import until
from onhost_fakes import REPOSITORY, FakeSystemd, timeless

from lockstep.onhost.core import errors, event_lines, layout
from lockstep.onhost.systemd import job_command, transient_job


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr("lockstep.onhost.systemd.units.is_root", lambda: True)

    class Host:
        paths = layout.Paths(tmp_path / "root")
        systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)

        def run(self, *argv: str) -> int:
            return job_command.main(["run", *argv], self.paths)

        def start_run(self, *argv: str) -> Future[int]:
            """The same in another thread."""
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
    ("work", "code", "output"),
    [
        # Options of the work.
        (["echo", "--uid", "--", "-x"], 0, "--uid -- -x\n"),
        # A bar that redraws itself.
        (["printf", "10%%\r20%%\r\n30%%\n"], 0, "10%\n20%\n30%\n"),
        (
            ["sh", "-c", "echo one; echo two; printf end; exit 7"],
            7,
            "one\ntwo\nend\njob build: failed (exit-code, exit status 7); log: {log}\n",
        ),
        (["sh", "-c", "kill -9 $$"], 137, "job build: failed (signal, signal 9); log: {log}\n"),
    ],
)
def test_output_comes_line_by_line_and_the_exit_status_is_the_works(
    host, capsys, work, code, output
):
    assert host.run("build", "--", *work) == code
    log = f"{host.paths.log}/jobs/build.log"
    assert capsys.readouterr().out == output.format(log=log)


def test_a_unit_that_systemd_refuses_says_why(host, capsys):
    reason = "web.socket: Failed to create listening socket: Address already in use"
    host.systemd.unit("web.socket", start_ok=False, journal=[reason])

    assert host.run("start-web", "--", "systemctl", "start", "web.socket") == 1

    assert capsys.readouterr().out.endswith(
        f"journal: {reason}\n"
        "job start-web: failed (exit-code, exit status 1); "
        f"log: {host.paths.log}/jobs/start-web.log\n"
    )


def test_work_that_may_fail_is_tried_again_as_often_as_is_said(host, tmp_path, capsys):
    once = ("sh", "-c", f"[ -e {tmp_path}/seen ] && exit 0; touch {tmp_path}/seen; exit 7")
    assert host.run("listen", "--tries", "2", "--", *once) == 0
    assert host.run("listen", "--tries", "2", "--", "sh", "-c", "exit 7") == 7
    assert capsys.readouterr().out.count("job listen: tried again\n") == 2


def test_a_later_run_starts_again_and_the_failure_of_other_work_is_not_told(host, capsys):
    assert host.run("build", "--", "echo", "one") == 0
    assert host.run("build", "--", "false") == 1
    capsys.readouterr()
    assert host.run("build", "--", "echo", "other") == 0
    assert capsys.readouterr().out == "other\n"


def test_a_job_that_failed_before_says_so_and_starts_again(host, tmp_path, capsys):
    work = ["sh", "-c", f"[ -e {tmp_path}/ok ] && echo better && exit; seq 5; echo oops; exit 3"]
    host.run("build", "--", *work)
    capsys.readouterr()
    (tmp_path / "ok").touch()

    assert host.run("build", "--", *work) == 0
    assert capsys.readouterr().out == (
        "job build: the last run failed (exit-code, exit status 3), starting again; it said:\n"
        "  4\n  5\n  oops\nbetter\n"
    )


def test_a_silent_job_gives_a_heartbeat(host, tmp_path):
    gate, lines = tmp_path / "go", []

    def say(line: str) -> None:
        lines.append(line)
        gate.touch()

    work = transient_job.Job("quiet", work_until(gate), log=host.paths.log / "jobs/quiet.log")
    transient_job.start_job(work, host.paths)
    assert transient_job.follow_job(work, False, say, heartbeat_s=0.2) == 0
    assert {timeless(line) for line in lines} == {"job quiet: still running, 0 s"}


@pytest.fixture(autouse=True)
def mirror(host, monkeypatch) -> Path:
    """A file with the messages, so that a test can wait for them from another thread."""
    host.paths.root.mkdir(parents=True)
    path = host.paths.root / "out"
    path.touch()

    def say(line: str) -> None:
        with path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    monkeypatch.setattr(event_lines, "say", say)
    return path


def test_the_same_work_is_attached_to_and_runs_once(host, tmp_path, mirror):
    gate, count = tmp_path / "go", tmp_path / "count"
    script = work_until(gate, f"echo started >> {count}", "echo done")
    first = host.start_run("b", "--", *script)
    until(count.exists, "it runs")
    second = host.start_run("b", "--", *script)
    until(lambda: "is running already" in mirror.read_text(), "attached")
    gate.touch()
    assert [first.result(180), second.result(180)] == [0, 0]
    assert count.read_text() == "started\n"


def test_other_work_under_the_same_name_is_waited_for(host, tmp_path, mirror, capsys):
    gate, begin_mark = tmp_path / "go", tmp_path / "began"
    first = host.start_run("b", "--", *work_until(gate, f"touch {begin_mark}", "echo first"))
    until(begin_mark.exists, "it runs")
    second = host.start_run("b", "--", "echo", "second")
    until(lambda: "waiting for its end" in mirror.read_text(), "it waits")
    gate.touch()
    wait([first, second], 180)
    assert capsys.readouterr().out.splitlines()[-2:] == ["first", "second"]


def _follower(host, gate: Path, end_mark: Path) -> subprocess.Popen[str]:
    """A process of its own that follows work, which talks until its gate is there."""
    script = f"echo begun; while [ ! -e {gate} ]; do echo on; sleep 0.05; done; touch {end_mark}"
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
        "from lockstep.onhost.core import errors, layout; "
        "from lockstep.onhost.systemd import job_command, units; "
        "from pathlib import Path; units.is_root = lambda: True; "
        f"sys.exit(job_command.main(sys.argv[1:], layout.Paths(Path({str(host.paths.root)!r}))))"
    )
    argv = [sys.executable, "-c", code, "run", "b", "--", "sh", "-c", script]
    follower = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert follower.stdout.readline() == "begun\n"
    return follower


def test_killing_the_follower_does_not_kill_the_job(host, tmp_path):
    gate, end_mark = tmp_path / "go", tmp_path / "done"
    follower = _follower(host, gate, end_mark)
    follower.send_signal(signal.SIGKILL)
    follower.wait()
    gate.touch()
    until(end_mark.exists, "the work goes on")
    until(lambda: host.systemd.state("lockstep-job-b.service")["SubState"] == "exited", "ended")


def test_a_follower_whose_connection_is_gone_ends_and_the_job_goes_on(host, tmp_path):
    gate, end_mark = tmp_path / "go", tmp_path / "done"
    follower = _follower(host, gate, end_mark)
    follower.stdout.close()

    assert follower.wait(180) == 141
    gate.touch()
    until(end_mark.exists, "the work goes on")


def take_its_name(host) -> None:
    host.systemd.unit("lockstep-job-b.service", Description="lockstep job b of other work")


@pytest.mark.parametrize(
    "end", [lambda host: job_command.main(["stop", "b"], host.paths), take_its_name]
)
def test_a_job_that_is_stopped_or_whose_name_other_work_has_by_now_gives_143(host, tmp_path, end):
    gate, begin_mark = tmp_path / "go", tmp_path / "began"
    run = host.start_run("b", "--", *work_until(gate, f"touch {begin_mark}"))
    until(begin_mark.exists, "it runs")
    assert not end(host)
    assert run.result(180) == 143
    gate.touch()


def test_attach_tells_how_a_finished_job_ended(host, capsys):
    host.run("b", "--", "sh", "-c", "echo last words; exit 4")
    capsys.readouterr()
    assert job_command.main(["attach", "b"], host.paths) == 4
    assert capsys.readouterr().out.splitlines()[0] == "last words"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "b"], "nothing to run"),
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
