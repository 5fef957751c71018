"""One deploy at a time: the lock of a deploy on this host, and the lines that tell of it.

A deploy sends this program to a host and speaks to its standard input until it ends: what it
changes, how it ended, and every `BEAT_S` a line, so that it is known to live. The lock is the
kernel's and goes with this process: at once where the deploy or its connection ends, and after
`SILENCE_S` where the network was cut. Who has it is said by a note beside it, for root alone.

A deploy that did not end well leaves no host between two generations: what `before` kept is
returned to while this process still has the lock, and the next deploy is told of it.
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

from lockstep.onhost.core import atomic, errors, file_lock, layout, output, program, runner
from lockstep.onhost.records import audit, before
from lockstep.onhost.systemd import transient, units

BEAT_S = 20
SILENCE_S = 70
#: How a deploy ended that did all it had to do.
DONE = "done"
#: Of two that begin at once and each have some of the hosts, the younger gives up, and the elder
#: waits so long for that, seconds.
PATIENCE_S = 10.0
# A deploy that asks who has the lock has sent this program just before, seconds.
_COMING_S = 12.0
_LOOK_S = 0.05
_JOB = "lockstep-job-rollout.service"
# What a deploy does here is a job of this name; the return comes after it, and ends by itself too.
_RETURN = program.command(
    *("job", "run", "rollout"),
    *("--property", "OOMScoreAdjust=-900", "--property", "TimeoutStopSec=7200"),
    *("--property", f"ExecStopPost={' '.join(program.command('rollout', 'mend'))}"),
    *("--", *program.command("rollout", "return")),
)
# Two starts of a large model, and the wait for a switch of an operator.
_RETURN_S = 4 * 3600.0
_SAID = 2000


@dataclass(frozen=True)
class Deploy:
    """Who deploys: a person (an account) at a machine (`origin`), in a run of its own name.

    `what` is "deploy of spark", and `began` is Unix time by that machine's clock.
    """

    run: str
    person: str
    origin: str
    what: str
    began: float

    def __str__(self) -> str:
        age = output.duration(max(0.0, time.time() - self.began))
        return f"{self.person} from {self.origin}: {self.what}, since {age}"

    def elder(self, other: Deploy) -> bool:
        """Whether it goes before another one that began at the same time."""
        return (self.began, self.run) < (other.began, other.run)


def take(asked: dict[str, Any], said: Iterable[str] = sys.stdin) -> dict[str, Any] | None:
    """Hold the lock while somebody speaks; ends with 75 where another deploy has it.

    Args:
        asked: A `Deploy` by its attributes.
        said: What the deploy says: "changed WHAT", "ended HOW", or nothing.

    Returns:
        "returned": whether this host is as it was before, and what was "said"; None where there was
        nothing to return from.
    """
    answer = None
    mine, paths = Deploy(**asked), layout.Paths()
    try:
        with held(mine, paths.deploy_lock):
            _gave_up(paths.deploy_lock).unlink(missing_ok=True)
            result, changed = _listened(mine, said)
            if result == DONE:
                # What an earlier deploy could not do is not wanted any more, or was done by this.
                runner.run(["systemctl", "reset-failed", "lockstep-job-*"], timeout=30)
                before.over(paths, deploy=True)
                paths.cut_off.unlink(missing_ok=True)
            elif changed and _between(paths):
                result, answer = _returned(paths, mine, result)
    except Occupied as occupied:
        # The other one may have ended by the time at which this host is asked who it was.
        gave_up = {"run": mine.run, "other": occupied.who}
        atomic.write_json(_gave_up(paths.deploy_lock), gave_up, mode=0o600)
        sys.exit(errors.EXIT_LOCKED)
    if result:
        audit.note(mine.person, mine.what, result, mine.origin)
    return answer


class Occupied(errors.Problem):
    """Another deploy has the lock; `who` is that, in words."""

    def __init__(self, who: str) -> None:
        super().__init__(
            f"a deploy is under way ({who}); nothing was changed. Remedy: wait for its end",
            errors.EXIT_LOCKED,
        )
        self.who = who


@contextlib.contextmanager
def held(mine: Deploy, path: Path) -> Iterator[None]:
    """Hold the lock of a deploy. Occupied (75) where another one has it and keeps it."""
    with _taken(mine, path, PATIENCE_S) as other:
        if other is not None:
            raise Occupied(other or "by somebody")
        yield


@contextlib.contextmanager
def _taken(mine: Deploy, path: Path, patience_s: float) -> Iterator[str | None]:
    """Take the lock while the block runs; who has it ("": unknown) where that is not possible."""
    with file_lock.open_file(path) as file:
        if not _locked(file, path, mine, patience_s):
            yield str(holder(path) or "")
            return
        with file_lock.noted(path, asdict(mine), mode=0o600):
            yield None


def _between(paths: layout.Paths) -> bool:
    """Whether a deploy that has ended leaves this host between what it was and was to be."""
    kept = before.there(paths)
    if kept is None or kept["rollout"]:
        return False
    job = units.show([_JOB])[_JOB]
    # A restart under way comes to its own end, good or bad, unless the other hosts return too.
    return bool(kept["whole"]) or not transient.running(job)


def _returned(paths: layout.Paths, mine: Deploy, result: str) -> tuple[str, dict[str, Any]]:
    """Return to what was kept; how the deploy ended, in words, and what `take` answers."""
    why = f"{mine.what} of {mine.person}: {result}"
    done = runner.run([*_RETURN, why], timeout=_RETURN_S)
    ended = f"{result}; " + (
        "this host returned to what it was before"
        if done.returncode == errors.EXIT_DONE
        else "this host could not return, /var/log/lockstep/jobs/rollout.log says why"
    )
    atomic.write_json(paths.cut_off, {"said": f"{mine.what} of {mine.person}: {ended}"}, mode=0o600)
    return ended, {"returned": done.returncode == 0, "said": done.stdout[-_SAID:]}


def cut_off(paths: layout.Paths) -> str:
    """What became of the deploy before, where this host had to return by itself; else ""."""
    kept = atomic.read_json(paths.cut_off)
    return str(kept.get("said", "")) if isinstance(kept, dict) else ""


def _listened(mine: Deploy, said: Iterable[str]) -> tuple[str, bool]:
    """What is said until the end; how the deploy ended, and whether it changed anything."""
    result, changed = "cut off", False
    signal.signal(signal.SIGALRM, _silent)
    signal.alarm(SILENCE_S)
    try:
        for line in said:
            signal.alarm(SILENCE_S)
            word, _, rest = line.strip().partition(" ")
            if word == "changed":
                changed = True
                audit.note(mine.person, mine.what, f"changed {rest}", mine.origin, step=True)
            elif word == "ended":
                result = rest
    except TimeoutError:
        result = f"nothing heard for {SILENCE_S} s"
    finally:
        signal.alarm(0)
    return result, changed


def _silent(*_: object) -> NoReturn:
    raise TimeoutError


def _locked(file: TextIO, path: Path, mine: Deploy, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        other = holder(path)
        if (other and other.elder(mine)) or time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)


@contextlib.contextmanager
def none_beside(what: str, paths: layout.Paths) -> Iterator[None]:
    """Keep deploys away from this host meanwhile; one that meets it is told `what` is done here.

    Problem when a deploy is under way.
    """
    mine = Deploy(uuid.uuid4().hex, "root", os.uname().nodename, what, time.time())
    with _taken(mine, paths.deploy_lock, 0.0) as other:
        if other is not None:
            raise Occupied(other or "by somebody")
        yield


def _gave_up(lock: Path) -> Path:
    """The note of the deploy that found the lock taken last."""
    return lock.with_name("deploy.gave-up.json")


def holder(path: Path) -> Deploy | None:
    """Who deploys to this host now, for root; a deploy that was killed has ended."""
    said = file_lock.holder(path) or {}
    try:
        return Deploy(**{each.name: said[each.name] for each in fields(Deploy)})
    except LookupError:
        return None


def other_than(mine: Deploy, path: Path) -> Deploy | str | None:
    """The deploy that has the lock and keeps it, None where this is `mine`; in words where it had
    the lock when `mine` was to take it, and may have ended since.

    Problem when nobody took it.
    """
    began = time.monotonic()
    while True:
        found, waited = holder(path), time.monotonic() - began
        if found and found.run == mine.run:
            return None
        if found and (found.elder(mine) or waited >= PATIENCE_S):
            return found
        said = atomic.read_json(_gave_up(path)) or {}
        if not found and said.get("run") == mine.run:
            return str(said["other"])
        if waited >= _COMING_S:
            raise errors.Problem("the lock of this deploy was not taken")
        time.sleep(_LOOK_S)
