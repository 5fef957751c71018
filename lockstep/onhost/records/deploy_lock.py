"""The lock that allows one deploy at a time on this host, and its audit lines.

A deploy sends this program to a host and writes to its standard input until it ends: its changes,
its result, and a line every `BEAT_S` as a heartbeat. The lock is the kernel's and ends with this
process: at once if the deploy or its connection ends, and after `SILENCE_S` if the network was cut.
A note beside it names the holder, for root alone.

A failed deploy leaves no host between two generations: while this process still has the lock, it
returns by its `journal`, and the next deploy is told.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, TextIO

from lockstep.onhost.core import (
    atomic_files,
    clock,
    errors,
    event_lines,
    file_lock,
    layout,
    program_command_lines,
    runner,
)
from lockstep.onhost.records import audit_log, generations, rollback_journal
from lockstep.onhost.systemd import transient_job, units

BEAT_S = 20
SILENCE_S = 70
#: Result of a deploy that did all it had to do.
RESULT_DONE = "done"
#: Of two deploys that begin at once and each hold some hosts, the younger gives up; seconds that
#: the elder waits for that.
PATIENCE_S = 10.0
# A deploy that asks for the holder has sent this program at most so many seconds before.
_COMING_S = 12.0
_LOOK_S = 0.05
_PROGRAMS_S = 30.0
#: The job that restarts what a deploy changed, and returns from a deploy; it ends by itself.
_JOB = "lockstep-job-rollout.service"
_RETURN = program_command_lines.command(
    *("job", "run", "rollout"),
    *("--property", "OOMScoreAdjust=-900", "--property", "TimeoutStopSec=7200"),
    *("--property", f"ExecStopPost={' '.join(program_command_lines.command('rollout', 'mend'))}"),
    *("--", *program_command_lines.command("rollout", "return")),
)
# Two starts of a large model, and the wait for an operator's switch.
_RETURN_S = 4 * 3600.0
_MOST_OUTPUT = 2000


@dataclass(frozen=True)
class Deploy:
    """One deploy: a person (an account) at a machine (`origin`), with a name for the run.

    `activity` is "deploy of spark", and `began` is Unix time by that machine's clock.
    """

    run: str
    person: str
    origin: str
    activity: str
    began: float

    def __str__(self) -> str:
        age = event_lines.duration(max(0.0, time.time() - self.began))
        return f"{self.person} from {self.origin}: {self.activity}, since {age}"

    def is_elder_than(self, other_deploy: Deploy) -> bool:
        """Tell whether this deploy precedes another one that began at the same time."""
        return (self.began, self.run) < (other_deploy.began, other_deploy.run)


def answer_request(
    deploy_fields: dict[str, Any], messages: Iterable[str] = sys.stdin
) -> dict[str, Any] | None:
    """Hold the lock while the deploy sends messages; exit with 75 if another deploy has it.

    Args:
        deploy_fields: A `Deploy` by its attributes, and "whole": whether all hosts return if one
            fails.
        messages: Lines of the deploy: "changed WHAT", "ended HOW", or empty.

    Returns:
        "returned": whether this host is as it was before, and the words "said"; None if there was
        nothing to restore.
    """
    answer = None
    whole = deploy_fields.pop("whole", False)
    this_deploy, paths = Deploy(**deploy_fields), layout.Paths()
    try:
        with hold_lock(this_deploy, paths.deploy_lock):
            _refused_deploy_path(paths.deploy_lock).unlink(missing_ok=True)
            result, has_changed = _read_messages(this_deploy, messages)
            if has_changed and result != RESULT_DONE:
                _wait_for_sent_programs(paths.proc)
            if result == RESULT_DONE:
                transient_job.clear_failed_jobs()
                rollback_journal.finish(paths)
                paths.cut_off.unlink(missing_ok=True)
            elif has_changed and _is_between_generations(paths, whole):
                result, answer = _roll_back(paths, this_deploy, result)
            elif generations.newest_number(paths) and not paths.begun_journal.exists():
                # Nothing of the generation that began is here, or it was returned from.
                generations.remove_begun_record(paths)
    except DeployUnderWay as error:
        # The other deploy may have ended by the time this host is asked for its name.
        gave_up = {"run": this_deploy.run, "other": error.holder_text}
        atomic_files.write_json(_refused_deploy_path(paths.deploy_lock), gave_up, mode=0o600)
        sys.exit(errors.EXIT_LOCKED)
    if result:
        audit_log.add_audit_line(
            this_deploy.person, this_deploy.activity, result, this_deploy.origin
        )
    return answer


class DeployUnderWay(errors.Problem):
    """The lock is held by another deploy, which `holder_text` describes."""

    def __init__(self, holder_text: str) -> None:
        super().__init__(
            f"a deploy is under way ({holder_text}); nothing was changed. Remedy: wait for its end",
            errors.EXIT_LOCKED,
        )
        self.holder_text = holder_text


@contextlib.contextmanager
def hold_lock(this_deploy: Deploy, path: Path) -> Iterator[None]:
    """Hold the lock of a deploy; raise DeployUnderWay (75) if another one keeps it."""
    with _hold_lock_or_yield_holder(this_deploy, path, PATIENCE_S) as holder_text:
        if holder_text is not None:
            raise DeployUnderWay(holder_text or "by somebody")
        yield


@contextlib.contextmanager
def _hold_lock_or_yield_holder(
    this_deploy: Deploy, path: Path, patience_s: float
) -> Iterator[str | None]:
    """Try to hold the lock while the block runs; yield its holder ("" if unknown) on failure."""
    with file_lock.open_file(path) as file:
        if not _acquire_lock_file(file, path, this_deploy, patience_s):
            yield str(lock_holder(path) or "")
            return
        with file_lock.note_holder(path, asdict(this_deploy), mode=0o600):
            yield None


def _wait_for_sent_programs(proc: Path) -> None:
    """Wait until the programs that the deploy has begun by the same login have ended, or 30 s.

    A killed deploy leaves them. One that writes after the way back would undo it.
    """
    own_groups = proc / "self/cgroup"
    groups = own_groups.read_text(encoding="utf-8").split() if own_groups.exists() else []
    scopes = [group.rpartition("/")[2] for group in groups if group.endswith(".scope")]
    until = clock.now() + _PROGRAMS_S
    while clock.now() < until and any(
        pid != os.getpid() and _is_sent_program(proc / str(pid))
        for scope in scopes
        for pid in units.processes(scope, proc)
    ):
        clock.sleep(0.1)


def _is_sent_program(process: Path) -> bool:
    """Tell whether a process runs a program that came by standard input, as this one did."""
    try:
        words = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return False
    return words[:3] == [program_command_lines.PYTHON, "-I", "-c"]


def _is_between_generations(paths: layout.Paths, whole: bool) -> bool:
    """Tell whether a deploy has ended and left this host between two generations."""
    document = rollback_journal.unfinished_journal(paths)
    # Members of a cluster return together, when the deploy tells them.
    if document is None or document["rollout"]:
        return False
    job = units.units_by_name([_JOB])[_JOB]
    # A restart under way ends by itself, unless the other hosts roll back too.
    return whole or not transient_job.is_running(job)


def _roll_back(paths: layout.Paths, this_deploy: Deploy, result: str) -> tuple[str, dict[str, Any]]:
    """Return by the journal; return the deploy's result in words, and the answer to its request."""
    why = f"{this_deploy.activity} of {this_deploy.person}: {result}"
    rollback_result = runner.run([*_RETURN, why], timeout=_RETURN_S)
    outcome = f"{result}; " + (
        "this host returned to what it was before"
        if rollback_result.returncode == errors.EXIT_DONE
        else "this host could not return, /var/log/lockstep/jobs/rollout.log says why"
    )
    atomic_files.write_json(
        paths.cut_off,
        {"said": f"{this_deploy.activity} of {this_deploy.person}: {outcome}"},
        mode=0o600,
    )
    return outcome, {
        "returned": rollback_result.returncode == 0,
        "said": rollback_result.stdout[-_MOST_OUTPUT:],
    }


def cut_off_deploy_outcome(paths: layout.Paths) -> str:
    """Return the outcome of the last deploy if this host rolled back by itself; else ""."""
    note = atomic_files.read_json(paths.cut_off)
    return str(note.get("said", "")) if isinstance(note, dict) else ""


def _read_messages(this_deploy: Deploy, messages: Iterable[str]) -> tuple[str, bool]:
    """Read messages to the end; return the result, and whether the deploy changed anything."""
    result, has_changed = "cut off", False
    signal.signal(signal.SIGALRM, _raise_time_out)
    signal.alarm(SILENCE_S)
    try:
        for line in messages:
            signal.alarm(SILENCE_S)
            word, _, detail = line.strip().partition(" ")
            if word == "changed":
                has_changed = True
                audit_log.add_audit_line(
                    this_deploy.person,
                    this_deploy.activity,
                    f"changed {detail}",
                    this_deploy.origin,
                    step=True,
                )
            elif word == "ended":
                result = detail
    except TimeoutError:
        result = f"nothing heard for {SILENCE_S} s"
    finally:
        signal.alarm(0)
    return result, has_changed


def _raise_time_out(*_: object) -> NoReturn:
    raise TimeoutError


def _acquire_lock_file(file: TextIO, path: Path, this_deploy: Deploy, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        current_holder = lock_holder(path)
        if (
            current_holder and current_holder.is_elder_than(this_deploy)
        ) or time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)


@contextlib.contextmanager
def keep_deploys_away(activity: str, paths: layout.Paths) -> Iterator[None]:
    """Keep deploys away while the block runs; a deploy that meets it is told the `activity`.

    Raises:
        errors.Problem: A deploy is under way.
    """
    this_deploy = Deploy(uuid.uuid4().hex, "root", os.uname().nodename, activity, time.time())
    with _hold_lock_or_yield_holder(this_deploy, paths.deploy_lock, 0.0) as holder_text:
        if holder_text is not None:
            raise DeployUnderWay(holder_text or "by somebody")
        yield


def _refused_deploy_path(lock: Path) -> Path:
    """Return the path of the note of the deploy that last found the lock taken."""
    return lock.with_name("deploy.gave-up.json")


def lock_holder(path: Path) -> Deploy | None:
    """Return the present deploy of this host, for root; a killed deploy counts as ended."""
    note = file_lock.holder(path) or {}
    try:
        return Deploy(**{field.name: note[field.name] for field in fields(Deploy)})
    except LookupError:
        return None


def other_lock_holder(this_deploy: Deploy, path: Path) -> Deploy | str | None:
    """Return the deploy that keeps the lock, or None for `this_deploy`.

    It is returned in words if it had the lock when `this_deploy` was to take it, and may have ended
    since.

    Raises:
        errors.Problem: Nobody took the lock.
    """
    began = time.monotonic()
    while True:
        current_holder, waited_s = lock_holder(path), time.monotonic() - began
        if current_holder and current_holder.run == this_deploy.run:
            return None
        if current_holder and (current_holder.is_elder_than(this_deploy) or waited_s >= PATIENCE_S):
            return current_holder
        note = atomic_files.read_json(_refused_deploy_path(path)) or {}
        if not current_holder and note.get("run") == this_deploy.run:
            return str(note["other"])
        if waited_s >= _COMING_S:
            raise errors.Problem("the lock of this deploy was not taken")
        time.sleep(_LOOK_S)
