"""A deploy where nobody watches: a line a stage that changed something, one a minute meanwhile."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from lockstep.core.terminal import clock_text
from lockstep.deploy import closing, events
from lockstep.deploy.course import Course, Downloads, Stage
from lockstep.onhost.core.progress import read_back

#: Seconds after which something that takes long says that it goes on.
SILENCE_S = 60.0
#: Lines of each host's and of nobody's that are kept, to be shown after a failure.
_KEPT = 30
_OF_A_HOST = re.compile(r"\s*\[([^\]]+)\] ?(.*)")


class Plain:
    """Prints a run; `screen.Screen` draws it.

    Args:
        course: The run, which this tells of what it takes.
        show: Prints a line.
        agree: Asks before the first change, where something is interrupted.
        password: Asks for one.
        clock: A monotonic clock.
    """

    def __init__(
        self,
        course: Course,
        show: Callable[[str], None],
        *,
        agree: Callable[[list[events.Interrupts]], bool],
        password: Callable[[str], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.course = course
        self.tail: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._show, self._agree, self._password, self._clock = show, agree, password, clock
        self._spoke = clock()
        self._failed: set[str] = set()

    def begin(self, inventory: str, log: str) -> None:
        """Say of what this is, and where all of it is kept."""
        self.say(f"Lockstep · {inventory} · all lines: {log}")

    def line(self, text: str) -> None:
        """Take a line that pyinfra printed."""
        self.tail[""].append(text)
        found = _OF_A_HOST.match(text)
        if found is None:
            return
        self.tail[found[1]].append(found[2])
        if found[1] in self.course.hosts:
            self.course.hear(found[1], found[2].strip(), read_back(found[2]), self._clock())

    def event(self, event: events.Event) -> Any:
        """Take an event; the answer, for one that waits for it."""
        if isinstance(event, events.Step):
            # What a host said in an earlier step is not why it fails in this one.
            for host in set(self.course.hosts) - self._failed:
                self.tail[host].clear()
        elif isinstance(event, events.Done):
            self._failed.update(event.failed)
        for stage in self.course.take(event, self._clock()):
            self.ended(stage)
        match event:
            case events.Empty():
                for text in closing.empty_host(event):
                    self.say(text)
            case events.Ready():
                self.course.agreed = self._agree(self.course.interrupts)
                return self.course.agreed
            case events.Asks(prompt=prompt):
                return self._password(prompt)
        return None

    def ended(self, stage: Stage) -> None:
        """A stage is over."""
        if stage.changed and not stage.failed and not stage.stopped:
            took = clock_text(stage.took(self._clock()))
            self.say(f"{stage.name:<10} {took:>7}  {changes_text(stage)}")

    def tick(self) -> None:
        """Say that something goes on, where nothing was said for a minute."""
        now = self._clock()
        stage = self.course.now
        if stage is None or now - self._spoke < SILENCE_S:
            return
        said = downloads_text(self.course.downloads, now) or self.course.step
        self.say(f"{stage.name:<10} {clock_text(stage.took(now)):>7}  … {said}")

    def interrupted(self) -> None:
        """Say that the run is being ended."""
        self.course.interrupted = True
        if self.course.agreed:
            self.say("Ending it; what is under way on a host is seen to its end there.")

    def say(self, text: str) -> None:
        """Print a line."""
        self._spoke = self._clock()
        self._show(text)

    def close(self) -> None:
        """Leave what was drawn; a printer has nothing to leave."""


def changes_text(stage: Stage) -> str:
    """ "spark1, spark2: install packages", or how many steps where there are several."""
    hosts = ", ".join(dict.fromkeys(name for each in stage.changed.values() for name in each))
    if len(stage.changed) > 1:
        return f"{hosts}: {len(stage.changed)} steps"
    return f"{hosts}: {next(iter(stage.changed))}"


def downloads_text(downloads: Downloads, now: float) -> str:
    """ "58.3 of 95.1 GB, 112 MB/s, about 5 min left"; "" where nothing more is to come."""
    return ", ".join(_parts(downloads, now)) if downloads.have < downloads.total else ""


def _parts(downloads: Downloads, now: float) -> Iterator[str]:
    power, unit = (1e9, "GB") if downloads.total >= 1e9 else (1e6, "MB")
    yield f"{downloads.have / power:.1f} of {downloads.total / power:.1f} {unit}"
    if downloads.speed is not None:
        yield f"{downloads.speed / 1e6:.{0 if downloads.speed >= 1e7 else 1}f} MB/s"
        left_s = downloads.left_s(now)
        if left_s is not None:
            yield f"about {left_text(left_s)} left"


def left_text(seconds: float) -> str:
    """A time that is still to come, no more exact than it is known: 40 s, 5 min, 2 h 10 min."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60 // 10 * 10} min"
