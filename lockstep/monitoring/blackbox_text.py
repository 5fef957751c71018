"""The last minutes of a Spark on a terminal: a summary, a table, a line for each figure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from lockstep.core.errors import paragraph
from lockstep.monitoring.blackbox import Event, Gauge, Story
from lockstep.onhost.core.event_lines import duration

#: Seconds before the end for the rows of the table.
_ROWS = (*range(6), 8, 10, 15, 20, 30, 45, 60, 90, *range(120, 3601, 60))
#: Most events of the table; the last ones.
_EVENTS = 40
_BARS = "▁▂▃▄▅▆▇█"
_WIDE = 40


def lines(story: Story) -> Iterator[str]:
    """Yield all lines, for 80 columns."""
    for sentence in summary(story):
        yield from paragraph(sentence).splitlines()
    if story.times:
        yield ""
        yield from _table(story)
        yield ""
        yield from _pictures(story)
    elif story.events:
        yield ""
        yield from (_event(event) for event in story.events[-_EVENTS:])
    for path, words in story.last_words.items():
        yield ""
        yield f"{path}:"
        yield from (f"  {line}" for line in words.splitlines())


def summary(story: Story) -> Iterator[str]:
    """Yield a summary in words."""
    by = f"recorded by {story.recorder}" if story.recorder else "by its own record"
    if story.alive:
        until = f"the last {story.minutes} minutes until {clock(story.now)} UTC"
        yield f"{story.host}, {by}: up, {until}"
        if story.boot_time is not None:
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(story.boot_time))
            yield f"it started at {began} UTC; --before-boot shows what was before that"
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(story.end))
        yield f"{story.host}, {by}: last seen at {when} UTC, {duration(story.now - story.end)} ago"
        if story.boot_time is not None and story.boot_time > story.end:
            yield f"it started again {duration(story.boot_time - story.end)} later"
    if story.state:
        yield f"model: {story.state[max(story.state)]}"
    last = [event for event in story.events if event.kind == "kernel"]
    if last:
        yield f"the kernel's last words, {_time_text(story.end, last[-1].at)}: {last[-1].words}"
    elif story.recorder:
        yield "the kernel said nothing in that time"
    yield from story.unknown


def _time_text(end: float, at: float) -> str:
    if at > end + 1:
        return f"{duration(at - end)} after that"
    return f"{duration(end - at)} before" if end - at >= 1 else "in that second"


def clock(at: float) -> str:
    """Return the time of day, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at))


def heading(figure: Gauge) -> str:
    """Return the heading of a column."""
    return f"{figure.heading} {figure.unit}".strip()


def value_text(figure: Gauge, values: Mapping[float, float], at: float) -> str:
    """Return the value of a moment; "·" where it is not known."""
    return f"{values[at]:.{figure.digits}f}" if at in values else "·"


def rows(story: Story) -> list[float]:
    """Return the moments of the table: each second at the end, fewer before."""
    values = {
        max((at for at in story.times if at <= story.end - back), default=None) for back in _ROWS
    }
    return sorted(at for at in values if at is not None)


def _table(story: Story) -> Iterator[str]:
    headings = [heading(figure).split() for figure in story.known_figures]
    wide = [max(5, *map(len, words)) for words in headings]
    # Headings of fewer words end on the same line as the others.
    lines = [*zip_longest(*map(reversed, headings), fillvalue="")]
    for edge, words in reversed([*enumerate(lines)]):
        cells = (f"{word:>{width}}" for word, width in zip(words, wide, strict=True))
        yield f"{'' if edge else 'UTC':8}  {' '.join(cells)}".rstrip()
    lines_told: list[tuple[float, str]] = []
    for at in rows(story):
        cells = (
            f"{value_text(figure, story.figures[figure.key], at):>{width}}"
            for figure, width in zip(story.known_figures, wide, strict=True)
        )
        lines_told.append((at, f"{clock(at)}  {' '.join(cells)}"))
    left_out = len(story.events) - _EVENTS
    if left_out > 0:
        yield f"({left_out} earlier events: --json)"
    lines_told += [(event.at, _event(event)) for event in story.events[-_EVENTS:]]
    yield from (line for _, line in sorted(lines_told, key=lambda table_line: table_line[0]))


def _event(event: Event) -> str:
    return f"{clock(event.at)}  {event.kind}: {event.words}"


def _pictures(story: Story) -> Iterator[str]:
    for figure in story.known_figures:
        values = story.figures[figure.key]
        low, high = min(values.values()), max(values.values())
        picture = sparkline([values[at] for at in sorted(values)])
        least, most = f"{low:.{figure.digits}f}", f"{high:.{figure.digits}f}"
        yield f"{heading(figure):18} {picture:{_WIDE}}  {least} to {most}"


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line of bars; each bar is the mean of its share of the values."""
    wide = min(_WIDE, len(values))
    low, high = min(values), max(values)
    parts = [
        values[len(values) * at // wide : len(values) * (at + 1) // wide] for at in range(wide)
    ]
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((sum(part) / len(part) - low) * scale)] for part in parts)
