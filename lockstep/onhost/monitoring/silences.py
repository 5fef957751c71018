"""Silences of alerts during a switch or a deploy, made and removed by a watch.

The watch sees the switch lock and the jobs of a deploy. So no switch waits for Alertmanager, none
fails by it, and a killed switch leaves no silence behind. A silence is short and is prolonged while
its reason holds: without the watch it ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lockstep.onhost.monitoring.alertmanager import (
    Alertmanager,
    AlertmanagerRefusal,
    AlertmanagerUnreachable,
)

AUTHOR = "lockstep"  #: Creator of our silences, as Alertmanager shows it.
#: Seconds that a silence lasts, and after which it is prolonged.
LASTS_S, AGAIN_S = 120.0, 30.0
#: Reason → subjects of the silenced alerts (`lockstep.monitoring.rules`).
SUBJECTS = {"a switch is under way": "model", "a deploy is under way": "model|host"}
SWITCH, DEPLOY = SUBJECTS


@dataclass
class Silences:
    """The silences of one host; `now` (Unix time, s) is replaced in tests."""

    alertmanager: Alertmanager
    now: Callable[[], float] = time.time
    _ids: dict[str, str] | None = field(default=None, init=False)
    _end_times: dict[str, float] = field(default_factory=dict, init=False)

    def ensure_silences(self, reasons: Mapping[str, bool]) -> str:
        """Ensure a silence for each reason that holds, and for no other.

        Returns:
            The reason why that failed, or "". The next call tries again.
        """
        try:
            # Adopt silences of a watch that was killed.
            if self._ids is None:
                self._ids = self._own_silences()
            for reason, holds in reasons.items():
                if holds:
                    self._extend_silence(self._ids, reason)
                elif reason in self._ids:
                    self._end_silences(self._ids, reason)
        except (AlertmanagerUnreachable, AlertmanagerRefusal) as fault:
            # Alertmanager may have been restarted, and know none of them.
            self._ids = None
            return str(fault)
        return ""

    def _own_silences(self) -> dict[str, str]:
        self._end_times.clear()
        return {
            silence["comment"]: silence["id"]
            for silence in self.alertmanager.silences()
            if silence["createdBy"] == AUTHOR and silence["status"]["state"] == "active"
        }

    def _extend_silence(self, ids: dict[str, str], reason: str) -> None:
        now = self.now()
        if now - self._end_times.get(reason, -AGAIN_S) < AGAIN_S:
            return
        subject = {"name": "subject", "value": SUBJECTS[reason], "isRegex": True, "isEqual": True}
        silence = {
            "matchers": [subject],
            "startsAt": _iso_time(now),
            "endsAt": _iso_time(now + LASTS_S),
            "createdBy": AUTHOR,
            "comment": reason,
        }
        silence_id = {"id": ids[reason]} if reason in ids else {}
        ids[reason] = self.alertmanager.put_silence({**silence, **silence_id})
        self._end_times[reason] = now

    def _end_silences(self, ids: dict[str, str], reason: str) -> None:
        self.alertmanager.end_silence(ids[reason])
        del ids[reason]
        self._end_times.pop(reason, None)


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
