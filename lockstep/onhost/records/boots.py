"""What was starting or hot in each boot of this host, on disk: what a power cut leaves to tell.

usage: boots ended TARGET      note that the unit of TARGET has ended

The start gate notes a target before its engine runs, `ready` when it has generated, and the unit's
end takes the note away, however it comes. A shutdown ends all units, so a boot that is past and
still has a target was cut off under it. (wtmp tells neither which target nor which phase, and the
journal's last lines are lost with the power.)

Durations are seconds since boot: without a battery the clock may be wrong after a boot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from lockstep.onhost.core import atomic, errors, file_lock, layout, output, program, runner

STARTING, HOT = "starting", "hot"
#: What asks for a switch after a boot, and as whom.
UNIT, BOOT = "lockstep-boot.service", "the boot unit"
HOUR_S = 3600.0
_KEPT = 20


@dataclass(frozen=True)
class Boot:
    """One boot.

    Attributes:
        id: The kernel's boot id, 32 hexadecimal digits.
        began: When it began, Unix time by the clock of its last note.
        lasted: For how long it is known to have lasted, in seconds.
        target: What was starting or hot, as last noted; None: nothing was.
        phase: `starting` or `hot`; None without a target.
        said: Why no model was made hot after it had begun, where one is asked for.
    """

    id: str
    began: float
    lasted: float
    target: str | None = None
    phase: str | None = None
    said: str | None = None


@dataclass(frozen=True)
class Record:
    """Boots in which anything was noted, oldest first, and what an operator's last switch left.

    `hot` is the target that was hot at its end, None for none, and `switched_in` its boot's id.
    """

    boots: tuple[Boot, ...] = ()
    hot: str | None = None
    switched_in: str | None = None

    def past(self, boot_id: str) -> tuple[Boot, ...]:
        """The boots before the present one, which has that id."""
        return tuple(boot for boot in self.boots if boot.id != boot_id)


def boot_id(paths: layout.Paths) -> str:
    """Id of the present boot."""
    text = (paths.proc / "sys/kernel/random/boot_id").read_text(encoding="ascii")
    return text.strip().replace("-", "")


def load(paths: layout.Paths) -> Record:
    """The record; an empty one where there is none or it cannot be read. Only root can."""
    try:
        data = json.loads(paths.boots.read_text(encoding="utf-8"))
        return Record(**{**data, "boots": tuple(Boot(**boot) for boot in data["boots"])})
    except (OSError, ValueError, TypeError, LookupError):
        return Record()


def crash_loop(record: Record, boot_id: str) -> str | None:
    """Why no model is made hot by itself in the boot of that id; None where nothing forbids it.

    The last two boots that were cut off under a target were so within an hour of running, and
    nobody has switched since. Time without power is no part of the hour.
    """
    past = record.past(boot_id)
    cut = [number for number, boot in enumerate(past) if boot.target]
    if len(cut) < 2:
        return None
    first, second = cut[-2:]
    ran_s = sum(boot.lasted for boot in past[first + 1 : second + 1])
    if ran_s > HOUR_S or record.switched_in in [boot.id for boot in past[second + 1 :]]:
        return None
    return (
        f"two boots were cut off within {output.duration(ran_s)}: while {past[first].target} was "
        f"{past[first].phase}, and while {past[second].target} was {past[second].phase}"
    )


def cut_off(paths: layout.Paths) -> Boot | None:
    """The newest past boot, where it was cut off while a target was starting or hot."""
    past = load(paths).past(boot_id(paths))
    return past[-1] if past and past[-1].target else None


def not_hot(paths: layout.Paths) -> str | None:
    """Why no model was made hot after the present boot; None where one was, or is by now."""
    record, present = load(paths), boot_id(paths)
    said = next((boot.said for boot in record.boots if boot.id == present), None)
    return None if record.switched_in == present else said


def noted(paths: layout.Paths, target: str, phase: str) -> None:
    """Note on disk that a target is `starting` or `hot` in this boot. OSError where that fails."""
    with _changing(paths) as (record, now):
        _keep(paths, record, replace(now, target=target, phase=phase))


def ended(paths: layout.Paths, target: str) -> None:
    """Note that a target's unit has ended. OSError where that fails."""
    with _changing(paths) as (record, now):
        # Another one may be starting by now.
        if now.target == target:
            _keep(paths, record, replace(now, target=None, phase=None))


def begun(paths: layout.Paths, said: str | None) -> None:
    """Note that this boot has begun, and why no model is made hot. OSError where that fails."""
    with _changing(paths) as (record, now):
        _keep(paths, record, replace(now, said=said))


def switched(paths: layout.Paths, hot: str | None) -> None:
    """Note what is hot at the end of an operator's switch. OSError where that fails."""
    with _changing(paths) as (record, now):
        _keep(paths, replace(record, hot=hot, switched_in=now.id), now)


@contextmanager
def _changing(paths: layout.Paths) -> Iterator[tuple[Record, Boot]]:
    """The record of the past boots, and the present one, while nobody else changes them."""
    with file_lock.held(paths.run / "boots.lock"):
        record, present = load(paths), boot_id(paths)
        past = record.past(present)
        if past == record.boots and past:
            past = (*past[:-1], _as_the_journal_knows(past[-1]))
        now = next((boot for boot in record.boots if boot.id == present), Boot(present, 0.0, 0.0))
        yield replace(record, boots=past), now


def _as_the_journal_knows(boot: Boot) -> Boot:
    """A boot that is over, with the time of its last line in the journal, where there is one."""
    argv = ["journalctl", "--quiet", "--no-pager", f"--boot={boot.id}", "--lines=1"]
    try:
        said = runner.run([*argv, "--output=json", "--output-fields=PRIORITY"], timeout=20).stdout
        last_s = int(json.loads(said)["__MONOTONIC_TIMESTAMP"]) / 1e6
    except (errors.Problem, ValueError, LookupError, TypeError):
        return boot
    return replace(boot, lasted=max(boot.lasted, last_s))


def _keep(paths: layout.Paths, record: Record, now: Boot) -> None:
    lasted = float((paths.proc / "uptime").read_text(encoding="ascii").split()[0])
    now = replace(now, began=time.time() - lasted, lasted=lasted)
    kept = replace(record, boots=(*record.boots, now)[-_KEPT:])
    atomic.write_json(paths.boots, asdict(kept), mode=0o600)
    # An engine may freeze the host in the seconds that a file system waits with a new name.
    atomic.flush(paths.boots.parent)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    if len(argv) != 2 or argv[0] != "ended":
        return program.usage(__doc__)
    ended(paths or layout.Paths(), argv[1])
    return errors.EXIT_DONE
