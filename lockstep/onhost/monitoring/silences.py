"""Silences while somebody switches or a deploy is under way, made and taken back by a watch.

The watch sees the switch lock and the jobs of a deploy. So no switch waits for Alertmanager, none
fails by it, and a switch that is killed leaves no silence behind. A silence lasts a short time and
is made to last longer while its reason does: without the watch it ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lockstep.onhost.monitoring.alertmanager import Alertmanager, Refused, Unreachable

AUTHOR = "lockstep"  #: Who made a silence, as Alertmanager shows it.
#: Seconds that a silence lasts, and after which it is made to last longer.
LASTS_S, AGAIN_S = 120.0, 30.0
#: Reason → subjects of the alerts that are not told meanwhile (`lockstep.monitoring.rules`).
SUBJECTS = {"a switch is under way": "model", "a deploy is under way": "model|host"}
SWITCH, DEPLOY = SUBJECTS


@dataclass
class Silences:
    """The silences of one host; `now` (Unix time, s) is replaced in tests."""

    alertmanager: Alertmanager
    now: Callable[[], float] = time.time
    _ids: dict[str, str] | None = field(default=None, init=False)
    _made: dict[str, float] = field(default_factory=dict, init=False)

    def keep(self, reasons: Mapping[str, bool]) -> str:
        """See to it that there is a silence for each reason that holds, and none for another.

        Returns:
            Why that could not be done; "" where it was. The next call tries again.
        """
        try:
            # Those of a watch that was killed are taken over.
            if self._ids is None:
                self._ids = self._ours()
            for reason, holds in reasons.items():
                if holds:
                    self._last(self._ids, reason)
                elif reason in self._ids:
                    self._end(self._ids, reason)
        except (Unreachable, Refused) as fault:
            # It may have been started anew, and know none of them.
            self._ids = None
            return str(fault)
        return ""

    def _ours(self) -> dict[str, str]:
        self._made.clear()
        return {
            each["comment"]: each["id"]
            for each in self.alertmanager.silences()
            if each["createdBy"] == AUTHOR and each["status"]["state"] == "active"
        }

    def _last(self, ids: dict[str, str], reason: str) -> None:
        now = self.now()
        if now - self._made.get(reason, -AGAIN_S) < AGAIN_S:
            return
        subject = {"name": "subject", "value": SUBJECTS[reason], "isRegex": True, "isEqual": True}
        silence = {
            "matchers": [subject],
            "startsAt": _time(now),
            "endsAt": _time(now + LASTS_S),
            "createdBy": AUTHOR,
            "comment": reason,
        }
        known = {"id": ids[reason]} if reason in ids else {}
        ids[reason] = self.alertmanager.silence({**silence, **known})
        self._made[reason] = now

    def _end(self, ids: dict[str, str], reason: str) -> None:
        self.alertmanager.end_silence(ids[reason])
        del ids[reason]
        self._made.pop(reason, None)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
