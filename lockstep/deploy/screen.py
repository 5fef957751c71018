"""A deploy on a terminal: one quiet screen that redraws itself in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lockstep.core.terminal import clock_text
from lockstep.deploy import events
from lockstep.deploy.course import Course, Downloads, Stage
from lockstep.deploy.plain import Plain, downloads_text
from lockstep.onhost.core.progress import Progress

_BAR = 24
_REDRAW_S = 0.25
_DONE, _FAILED, _STOPPED = ("✓", "green"), ("✗", "bold red"), ("■", "yellow")
_NOW, _TO_COME = ("▸", "bold"), ("·", "dim")


class Screen(Plain):
    """Draws a run; its arguments are those of `Plain`, and the console."""

    def __init__(self, course: Course, console: Console, **rest: Any) -> None:
        super().__init__(course, lambda text: console.print(text, markup=False), **rest)
        self._console = console
        self._drawn = 0.0
        self._live: Live | None = None
        self._heading = self._below = ""

    def begin(self, inventory: str, log: str) -> None:
        """Draw from now on."""
        self._heading, self._below = inventory, log
        self._live = self._drawing()

    def event(self, event: events.Event) -> Any:
        """Take an event; what asks people has the terminal for itself."""
        asks = isinstance(event, events.Asks) or (
            isinstance(event, events.Ready) and bool(self.course.interrupts)
        )
        if not asks or not self._live:
            return super().event(event)
        # The picture goes, and question and answer stay in its place.
        self._live.transient = True
        self._live.stop()
        try:
            return super().event(event)
        finally:
            # The old one would draw over them: it goes up by the height of its last picture.
            self._live = self._drawing()

    def ended(self, stage: Stage) -> None:
        """A stage is over: the next frame shows it."""

    def tick(self) -> None:
        """Redraw."""
        if self._live and self._clock() - self._drawn >= _REDRAW_S:
            self._drawn = self._clock()
            self._live.refresh()

    def close(self) -> None:
        """Leave the last frame where it is."""
        if self._live:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def _drawing(self) -> Live:
        live = Live(console=self._console, auto_refresh=False, get_renderable=self._frame)
        live.start()
        return live

    def _frame(self) -> Group:
        lines = frame(self.course, self._heading, self._below, self._clock(), self._console.width)
        return Group(*lines)


def frame(course: Course, inventory: str, log: str, now: float, width: int) -> list[Text]:
    """One picture of a run.

    Args:
        course: The run.
        inventory: As it was typed.
        log: Path of the log.
        now: On the clock of the course.
        width: Columns.
    """
    elapsed = clock_text(now - course.began)
    hosts = f" · {len(course.hosts)} Sparks" if len(course.hosts) > 1 else ""
    left = f"Lockstep · {inventory}{hosts}"
    room = max(1, width - len(elapsed) - 2)
    lines = [Text(f"{_cut(left, room):<{room}}  {elapsed}", "bold")]
    stages = list(course.stages.values())
    # Of a run that changed nothing, its last sentence says all.
    if course.now or course.changed or course.failed or course.interrupted or course.refused:
        lines += _row([_mark(each) for each in stages if each.ended is not None], width)
    if course.now:
        lines += [Text(_cut(text, width)) for text in _present(course, course.now, now, width)]
    to_come = [each for each in stages if each.began is None]
    if course.now:
        lines += _row([Text(f"{_TO_COME[0]} {each.name}", _TO_COME[1]) for each in to_come], width)
    # A path is there to be copied: it is folded, never cut.
    return [*lines, Text(f"all lines: {log}", "dim", overflow="fold")]


def _mark(stage: Stage) -> Text:
    sign, style = _FAILED if stage.failed else _STOPPED if stage.stopped else _DONE
    return Text.assemble((sign, style), f" {stage.name}")


def _row(parts: list[Text], width: int) -> list[Text]:
    """Parts side by side, on as many lines as they need."""
    lines: list[Text] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] = Text.assemble(lines[-1], "   ", part)
        else:
            lines.append(part)
    return lines


def _present(course: Course, stage: Stage, now: float, width: int) -> Iterator[str]:
    """The present stage: its bar or its step, and what each host is at."""
    fetched = course.downloads
    head = f"{_NOW[0]} {stage.name}"
    if said := downloads_text(fetched, now):
        bar = _bar(fetched)
        together = f"{head}   {bar}  {said}"
        yield from (together,) if len(together) <= width else (f"{head}   {bar}", f"  {said}")
    elif course.step:
        yield f"{head}   {course.step}   {clock_text(now - course.stepped)}"
    else:
        yield f"{head}   {clock_text(stage.took(now))}"
    names = max((len(name) for name in course.last), default=0)
    for host in course.hosts:
        progress = _under_way(fetched, host)
        said = _of_host(progress) if progress else course.last.get(host, "")
        if said:
            yield f"    {host:<{names}}  {said}"


def _bar(fetched: Downloads) -> str:
    full = round(_BAR * fetched.have / fetched.total)
    return "█" * full + "░" * (_BAR - full)


def _under_way(fetched: Downloads, host: str) -> Progress | None:
    """The first that a host has told of and that is not whole, None where all is."""
    found = (each for (name, _), each in fetched.each.items() if name == host)
    return next((each for each in found if each.have < each.total), None)


def _of_host(progress: Progress) -> str:
    what = progress.what.partition(" ")[2].rpartition("/")[2]
    power, unit = (1e9, "GB") if progress.total >= 1e9 else (1e6, "MB")
    amount = f"{progress.have / power:.1f} of {progress.total / power:.1f} {unit}"
    return "  ".join(filter(None, (what, amount, progress.source)))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
