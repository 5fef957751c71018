"""A deploy without a terminal: a line for each stage with changes, and one a minute meanwhile."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from lockstep.core.terminal import clock_text
from lockstep.deploy import closing, events
from lockstep.deploy.course import Course, Downloads, Stage
from lockstep.onhost.core.event_lines import read_event
from lockstep.onhost.fetch.download_progress import parse_progress

#: Seconds without output after which a long step reports that it continues.
SILENCE_S = 60.0
#: Lines to keep for each host, and for none, to be shown after a failure.
_KEPT = 30
_OF_A_HOST = re.compile(r"\s*\[([^\]]+)\] ?(.*)")


class Plain:
    """The printer of a run; `screen.Screen` draws it instead.

    Args:
        course: The run, which receives all events and lines.
        show: Prints a line.
        agree: Asks for permission before the first change, if something is interrupted.
        password: Asks for a password.
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
        self._failed_hosts: set[str] = set()

    def begin(self, inventory: str, log: str) -> None:
        """Print the inventory of the run, and the place of its log."""
        self.say(f"Lockstep · {inventory} · all lines: {log}")

    def line(self, text: str) -> None:
        """Take a line that pyinfra printed."""
        self.tail[""].append(text)
        match = _OF_A_HOST.match(text)
        if match is None:
            return
        host, words = match[1], read_event(match[2])
        self.tail[host].append(words)
        if host in self.course.hosts:
            self.course.hear(host, words.strip(), parse_progress(words), self._clock())

    def event(self, event: events.Event) -> Any:
        """Take an event; return the answer to an event that waits for one."""
        if isinstance(event, events.StepProgress):
            # A host's lines in an earlier step do not explain a failure in this one.
            for host in set(self.course.hosts) - self._failed_hosts:
                self.tail[host].clear()
        elif isinstance(event, events.OperationDone):
            self._failed_hosts.update(event.failed_hosts)
        for stage in self.course.take(event, self._clock()):
            self.end_stage(stage)
        match event:
            case events.Empty():
                for text in closing.empty_host(event):
                    self.say(text)
            case events.Ready():
                self.course.is_agreed = self._agree(self.course.interrupts)
                return self.course.is_agreed
            case events.Asks(prompt=prompt):
                return self._password(prompt)
        return None

    def end_stage(self, stage: Stage) -> None:
        """Print the line of a stage that has ended."""
        if stage.changed_hosts and not stage.has_failed and not stage.was_stopped:
            took = clock_text(stage.took(self._clock()))
            self.say(f"{stage.name:<10} {took:>7}  {changes_text(stage)}")

    def tick(self) -> None:
        """Report that the step continues, if nothing was printed for a minute."""
        now = self._clock()
        stage = self.course.now
        if stage is None or now - self._spoke < SILENCE_S:
            return
        text = downloads_text(self.course.downloads, now) or self.course.step
        self.say(f"{stage.name:<10} {clock_text(stage.took(now)):>7}  … {text}")

    def report_interrupt(self) -> None:
        """Print that the run is being ended."""
        self.course.is_interrupted = True
        if self.course.is_agreed:
            self.say("Ending it; what is under way on a host is seen to its end there.")

    def say(self, text: str) -> None:
        """Print a line."""
        self._spoke = self._clock()
        self._show(text)

    def close(self) -> None:
        """Do nothing: a printer has no last frame to leave."""


def changes_text(stage: Stage) -> str:
    """Return "spark1, spark2: install packages", or the number of steps if there are several."""
    hosts = ", ".join(
        dict.fromkeys(name for names in stage.changed_hosts.values() for name in names)
    )
    if len(stage.changed_hosts) > 1:
        return f"{hosts}: {len(stage.changed_hosts)} steps"
    return f"{hosts}: {next(iter(stage.changed_hosts))}"


def downloads_text(downloads: Downloads, now: float) -> str:
    """Return "58.3 of 95.1 GB, 112 MB/s, about 5 min left"; "" if nothing more is to come."""
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
    """Return a remaining time, no more exact than it is known: 40 s, 5 min, 2 h 10 min."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60 // 10 * 10} min"
