"""Apt's locks: every command waits for them, names their holder, and waits again when refused."""

from types import SimpleNamespace

import pytest
from a_lock import hold_lock
from a_probe import program

from lockstep.onhost.core import errors, layout, program_command_lines
from lockstep.onhost.system import apt_lock_wait

LISTS = "var/lib/apt/lists/lock"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Make `apt-get` say a text and end with a code, and well the next time; returns its words."""
    monkeypatch.setattr(apt_lock_wait, "LOOK_EVERY_S", 0.01)

    def make(text="", code=0):
        ran = f"{tmp_path}/ran"
        again = f"echo ran >> {ran}; test $(wc -l < {ran}) -gt 1 && exit 0"
        path = program(tmp_path, "apt-get", f"{again}\necho '{text}'\nexit {code}")
        return ["--", str(path), "-q", "update"]

    return make


def runs(paths) -> int:
    """Count the runs of the command of `work`."""
    record = paths.root / "ran"
    return len(record.read_text().splitlines()) if record.exists() else 0


@pytest.mark.parametrize("name", apt_lock_wait.LOCKS)
def test_every_lock_of_apt_and_dpkg_is_seen_and_its_holder_named(paths, name):
    path = paths.root / name
    assert apt_lock_wait.apt_lock_holder(paths) is None
    with hold_lock(path) as process:
        real = apt_lock_wait.apt_lock_holder(layout.Paths(paths.root))
        assert (real.lock, real.pid) == (str(path), process.pid)
        proc = paths.proc / str(process.pid)
        proc.mkdir(parents=True)
        (proc / "comm").write_text("apt-get\n")
        (proc / "cgroup").write_text("1:name=systemd:/x\n0::/system.slice/apt-daily.service\n")
        assert str(apt_lock_wait.apt_lock_holder(paths)) == (
            f"{path} is held by apt-get (process {process.pid}, apt-daily.service)"
        )
    assert apt_lock_wait.apt_lock_holder(paths) is None


@pytest.mark.parametrize(
    ("text", "code", "end"),
    [
        ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (x)", 100, 0),
        # Nothing else is done twice.
        ("E: Unable to locate package jq", 100, 100),
        ("Could not get lock, said a package", 0, 0),
    ],
)
# By the real apt, with each lock: tests/render/test_apt_by_apt.py.
def test_a_command_that_somebody_beat_to_the_lock_waits_again(paths, work, capfd, text, code, end):
    assert apt_lock_wait.main(work(text, code), paths) == end
    assert runs(paths) == 1 + (code > end)
    assert capfd.readouterr().out.startswith(f"{text}\n")


@pytest.fixture
def clock(monkeypatch, work) -> None:
    """Time that passes by sleeping only, a second for each look."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(apt_lock_wait, "time", clock)
    monkeypatch.setattr(apt_lock_wait, "LOOK_EVERY_S", 1.0)


@pytest.mark.usefixtures("clock")
def test_the_holder_is_named_once_a_minute_and_after_thirty_with_what_to_do(
    paths, work, monkeypatch, capsys
):
    lock_holder = apt_lock_wait.AptLockHolder(
        "/var/lib/dpkg/lock", 7, "apt-get", "dgx-dashboard-admin.service"
    )
    monkeypatch.setattr(apt_lock_wait, "apt_lock_holder", lambda paths: lock_holder)
    with pytest.raises(errors.Problem) as problem:
        apt_lock_wait.main(work(), paths)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 30 and all(str(lock_holder) in line for line in lines)
    assert lines[-1].startswith("apt-get update: waited 29 min of 30 min, ")
    assert (problem.value.code, runs(paths)) == (errors.EXIT_LOCKED, 0)
    message = str(problem.value)
    assert f"apt-get update: not done after 30 min, {lock_holder}. Remedy: `journalctl" in message
    assert "Run the deploy again when the lock is free; do not remove it." in message
    # A command of ours is named by its word.
    words = ["/usr/bin/python3", program_command_lines.PROGRAMS, "packages", "prepare", "jq"]
    with pytest.raises(errors.Problem, match=r"^packages prepare: not done after 0 s"):
        apt_lock_wait.main(["--limit", "0", "--", *words], paths)


@pytest.mark.parametrize(
    ("process", "unit", "remedy"),
    [
        ("packagekitd", "packagekit.service", "`sudo systemctl stop packagekit.service` frees"),
        ("aptd", "", "`sudo kill 7` frees"),
        ("apt-get", "session-1.scope", "`ps -fp 7` shows"),
    ],
)
def test_one_that_works_for_another_program_may_be_ended(process, unit, remedy):
    assert remedy in apt_lock_wait.AptLockHolder("/var/lib/dpkg/lock", 7, process, unit).remedy


def test_needrestart_restarts_nothing_after_a_command_of_ours_and_a_missing_one_is_told(
    paths, tmp_path, capfd
):
    command = program(tmp_path, "apt-get", "echo $NEEDRESTART_SUSPEND")
    assert apt_lock_wait.main(["--", str(command)], paths) == 0
    assert capfd.readouterr().out == "1\n"
    with pytest.raises(errors.Problem, match="No such file"):
        apt_lock_wait.main(["--", "/nonexistent/apt-get"], paths)


@pytest.mark.usefixtures("clock")
def test_who_is_refused_each_time_gives_up_too(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(apt_lock_wait, "LOOK_EVERY_S", 60.0)
    command = program(tmp_path, "apt-get", "echo 'E: Could not get lock /x'; exit 100")
    with pytest.raises(errors.Problem, match="not done after 30 min, it was refused a lock"):
        apt_lock_wait.main(["--", str(command)], paths)
