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
from lockstep.onhost.fetch.download_progress import Progress

_BAR = 24
_REDRAW_S = 0.25
_DONE, _FAILED, _STOPPED = ("✓", "green"), ("✗", "bold red"), ("■", "yellow")
_NOW, _TO_COME = ("▸", "bold"), ("·", "dim")


class Screen(Plain):
    """The drawing of a run on a console; the other arguments are those of `Plain`."""

    def __init__(self, course: Course, console: Console, **settings: Any) -> None:
        super().__init__(course, lambda text: console.print(text, markup=False), **settings)
        self._console = console
        self._draw_time = 0.0
        self._live: Live | None = None
        self._heading = self._below = ""

    def begin(self, inventory: str, log: str) -> None:
        """Start to draw."""
        self._heading, self._below = inventory, log
        self._live = self._drawing()

    def event(self, event: events.Event) -> Any:
        """Take an event; a question to people gets the terminal for itself."""
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
            # The old display would draw over them, because it moves up by the height of its last
            # picture.
            self._live = self._drawing()

    def end_stage(self, stage: Stage) -> None:
        """Do nothing: the next frame shows that the stage has ended."""

    def tick(self) -> None:
        """Redraw, at most every `_REDRAW_S` seconds."""
        if self._live and self._clock() - self._draw_time >= _REDRAW_S:
            self._draw_time = self._clock()
            self._live.refresh()

    def close(self) -> None:
        """Leave the last frame in place."""
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
    """Return one picture of a run.

    Args:
        course: The run.
        inventory: The inventory as the user typed it.
        log: Path of the log.
        now: On the clock of the course.
        width: Columns.
    """
    elapsed_text = clock_text(now - course.began)
    hosts = f" · {len(course.hosts)} Sparks" if len(course.hosts) > 1 else ""
    left_text = f"Lockstep · {inventory}{hosts}"
    room = max(1, width - len(elapsed_text) - 2)
    lines = [Text(f"{_cut(left_text, room):<{room}}  {elapsed_text}", "bold")]
    stages = list(course.stages.values())
    # For a run that changed nothing, its last sentence says all.
    if (
        course.now
        or course.has_changed
        or course.has_failed
        or course.is_interrupted
        or course.refusal
    ):
        lines += _row([_mark(stage) for stage in stages if stage.end_time is not None], width)
    if course.now:
        lines += [Text(_cut(text, width)) for text in _present(course, course.now, now, width)]
    to_come = [stage for stage in stages if stage.began is None]
    if course.now:
        lines += _row(
            [Text(f"{_TO_COME[0]} {stage.name}", _TO_COME[1]) for stage in to_come], width
        )
    # People copy the path, so it is folded and never cut.
    return [*lines, Text(f"all lines: {log}", "dim", overflow="fold")]


def _mark(stage: Stage) -> Text:
    sign, style = _FAILED if stage.has_failed else _STOPPED if stage.was_stopped else _DONE
    return Text.assemble((sign, style), f" {stage.name}")


def _row(parts: list[Text], width: int) -> list[Text]:
    """Return parts side by side, on as many lines as they need."""
    lines: list[Text] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] = Text.assemble(lines[-1], "   ", part)
        else:
            lines.append(part)
    return lines


def _present(course: Course, stage: Stage, now: float, width: int) -> Iterator[str]:
    """Yield the present stage: its bar or its step, and the progress of each host."""
    downloads = course.downloads
    head = f"{_NOW[0]} {stage.name}"
    if text := downloads_text(downloads, now):
        bar = _bar(downloads)
        together = f"{head}   {bar}  {text}"
        yield from (together,) if len(together) <= width else (f"{head}   {bar}", f"  {text}")
    elif course.step:
        yield f"{head}   {course.step}   {clock_text(now - course.step_time)}"
    else:
        yield f"{head}   {clock_text(stage.took(now))}"
    names = max((len(name) for name in course.last), default=0)
    for host in course.hosts:
        progress = _under_way(downloads, host)
        text = _of_host(progress) if progress else course.last.get(host, "")
        if text:
            yield f"    {host:<{names}}  {text}"


def _bar(downloads: Downloads) -> str:
    full = round(_BAR * downloads.have / downloads.total)
    return "█" * full + "░" * (_BAR - full)


def _under_way(downloads: Downloads, host: str) -> Progress | None:
    """Return a host's first incomplete download, or None if all are complete."""
    candidates = (progress for (name, _), progress in downloads.by_file.items() if name == host)
    return next((progress for progress in candidates if progress.have < progress.total), None)


def _of_host(progress: Progress) -> str:
    file_name = progress.subject.partition(" ")[2].rpartition("/")[2]
    power, unit = (1e9, "GB") if progress.total >= 1e9 else (1e6, "MB")
    amount = f"{progress.have / power:.1f} of {progress.total / power:.1f} {unit}"
    return "  ".join(filter(None, (file_name, amount, progress.source)))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
