"""The model starting or hot in each boot of this host, on disk for the time after a power cut.

The start gate notes a model before its engine runs, and `ready` when it has generated. Every end
of the unit removes the note. A shutdown ends all units, so a past boot that still has a model was
cut off under it. (wtmp tells neither which model nor which phase, and the journal's last lines are
lost with the power.)

Durations are seconds since boot: without a battery the clock may be wrong after a boot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lockstep.onhost.core import atomic_files, errors, event_lines, file_lock, layout, runner
from lockstep.onhost.records import json_records

STARTING, HOT = "starting", "hot"
#: The unit that starts a switch after a boot, and the person in whose name it does.
UNIT, BOOT = "lockstep-boot.service", "the boot unit"
HOUR_S = 3600.0
_MOST_BOOTS = 20


@dataclass(frozen=True)
class Boot:
    """One boot.

    Attributes:
        id: The kernel's boot id, 32 hexadecimal digits.
        began: Its start, Unix time by the clock of its last note.
        duration_s: Seconds for which it is known to have lasted.
        model: The model last noted as starting or hot; None if there was none.
        phase: `starting` or `hot`; None without a model.
        no_model_reason: Why no model was made hot after it had begun, although one is wanted.
    """

    id: str
    began: float
    duration_s: float
    model: str | None = None
    phase: str | None = None
    no_model_reason: str | None = None


@dataclass(frozen=True)
class BootRecord:
    """Boots with a note, oldest first, and the result of an operator's last switch.

    `hot` is the model that was hot at its end, or None, and `switched_in` its boot's id.
    """

    boots: tuple[Boot, ...] = ()
    hot: str | None = None
    switched_in: str | None = None

    def past_boots(self, boot_id: str) -> tuple[Boot, ...]:
        """Return all boots but the present one, which has that id."""
        return tuple(boot for boot in self.boots if boot.id != boot_id)


def boot_id(paths: layout.Paths) -> str:
    """Return the id of the present boot."""
    text = (paths.proc / "sys/kernel/random/boot_id").read_text(encoding="ascii")
    return text.strip().replace("-", "")


def load(paths: layout.Paths) -> BootRecord:
    """Return the record, empty if it is missing or unreadable. Only root can read it."""
    return json_records.load(BootRecord, paths.boots) or BootRecord()


def crash_loop_reason(record: BootRecord, boot_id: str) -> str | None:
    """Return why no model is made hot automatically in the boot of that id; None to allow it.

    The last two boots that were cut off under a model were so within an hour of running, and
    nobody has switched since. Time without power does not count.
    """
    past = record.past_boots(boot_id)
    cut = [number for number, boot in enumerate(past) if boot.model]
    if len(cut) < 2:
        return None
    first, second = cut[-2:]
    ran_s = sum(boot.duration_s for boot in past[first + 1 : second + 1])
    if ran_s > HOUR_S or record.switched_in in [boot.id for boot in past[second + 1 :]]:
        return None
    return (
        f"two boots were cut off within {event_lines.duration(ran_s)}: "
        f"while {past[first].model} was {past[first].phase}, "
        f"and while {past[second].model} was {past[second].phase}"
    )


def cut_off_boot(paths: layout.Paths) -> Boot | None:
    """Return the newest past boot if it was cut off while a model was starting or hot."""
    past = load(paths).past_boots(boot_id(paths))
    return past[-1] if past and past[-1].model else None


def no_model_reason_of_boot(paths: layout.Paths) -> str | None:
    """Return why no model was made hot after this boot; None if one was, or is by now."""
    record, present = load(paths), boot_id(paths)
    reason = next((boot.no_model_reason for boot in record.boots if boot.id == present), None)
    return None if record.switched_in == present else reason


def record_model_phase(paths: layout.Paths, model: str, phase: str) -> None:
    """Record that a model is `starting` or `hot` in this boot; raise OSError on failure."""
    with _hold_record_for_change(paths) as (record, now):
        _save_with_boot(paths, record, replace(now, model=model, phase=phase))


def record_model_end(paths: layout.Paths, model: str) -> None:
    """Record that a model's unit has ended; raise OSError on failure."""
    with _hold_record_for_change(paths) as (record, now):
        # Another model may be starting by now.
        if now.model == model:
            _save_with_boot(paths, record, replace(now, model=None, phase=None))


def record_boot_begin(paths: layout.Paths, no_model_reason: str | None) -> None:
    """Record that this boot has begun, and why no model is made hot; raise OSError on failure."""
    with _hold_record_for_change(paths) as (record, now):
        _save_with_boot(paths, record, replace(now, no_model_reason=no_model_reason))


def record_hot_model_of_switch(paths: layout.Paths, hot: str | None) -> None:
    """Record the hot model at the end of an operator's switch; raise OSError on failure."""
    with _hold_record_for_change(paths) as (record, now):
        _save_with_boot(paths, replace(record, hot=hot, switched_in=now.id), now)


@contextmanager
def _hold_record_for_change(paths: layout.Paths) -> Iterator[tuple[BootRecord, Boot]]:
    """Yield the record of past boots, and the present boot, under an exclusive lock."""
    with file_lock.hold_lock(paths.run / "boots.lock"):
        record, present = load(paths), boot_id(paths)
        past = record.past_boots(present)
        if past == record.boots and past:
            past = (*past[:-1], _with_last_journal_time(past[-1]))
        now = next((boot for boot in record.boots if boot.id == present), Boot(present, 0.0, 0.0))
        yield replace(record, boots=past), now


def _with_last_journal_time(boot: Boot) -> Boot:
    """Return a past boot with the time of its last line in the journal, if there is one."""
    argv = ["journalctl", "--quiet", "--no-pager", f"--boot={boot.id}", "--lines=1"]
    try:
        line_text = runner.run(
            [*argv, "--output=json", "--output-fields=PRIORITY"], timeout=20
        ).stdout
        last_s = int(json.loads(line_text)["__MONOTONIC_TIMESTAMP"]) / 1e6
    except (errors.Problem, ValueError, LookupError, TypeError):
        return boot
    return replace(boot, duration_s=max(boot.duration_s, last_s))


def _save_with_boot(paths: layout.Paths, record: BootRecord, now: Boot) -> None:
    uptime_s = float((paths.proc / "uptime").read_text(encoding="ascii").split()[0])
    now = replace(now, began=time.time() - uptime_s, duration_s=uptime_s)
    new_record = replace(record, boots=(*record.boots, now)[-_MOST_BOOTS:])
    json_records.save(paths.boots, new_record, mode=0o600)
    # A file system may write the new name seconds later, when an engine may have frozen the host.
    atomic_files.flush(paths.boots.parent)
