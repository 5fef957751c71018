"""The last minutes of a Spark on a terminal: what is known, a table, a line for each figure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from lockstep.core.errors import paragraph
from lockstep.monitoring.blackbox import Event, Figure, Story
from lockstep.onhost.core.output import duration

#: Seconds before the end of the rows of the table.
_ROWS = (*range(6), 8, 10, 15, 20, 30, 45, 60, 90, *range(120, 3601, 60))
#: Most events of the table; the last ones.
_EVENTS = 40
_BARS = "▁▂▃▄▅▆▇█"
_WIDE = 40


def lines(story: Story) -> Iterator[str]:
    """The whole, line by line, for 80 columns."""
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
    """What is known in words."""
    by = f"recorded by {story.recorder}" if story.recorder else "by its own record"
    if story.alive:
        until = f"the last {story.minutes} minutes until {clock(story.now)} UTC"
        yield f"{story.host}, {by}: up, {until}"
        if story.booted is not None:
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(story.booted))
            yield f"it started at {began} UTC; --before-boot shows what was before that"
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(story.end))
        yield f"{story.host}, {by}: last seen at {when} UTC, {duration(story.now - story.end)} ago"
        if story.booted is not None and story.booted > story.end:
            yield f"it started again {duration(story.booted - story.end)} later"
    if story.state:
        yield f"model: {story.state[max(story.state)]}"
    last = [event for event in story.events if event.kind == "kernel"]
    if last:
        yield f"the kernel's last words, {_before(story.end, last[-1].at)}: {last[-1].words}"
    elif story.recorder:
        yield "the kernel said nothing in that time"
    yield from story.unknown


def _before(end: float, at: float) -> str:
    if at > end + 1:
        return f"{duration(at - end)} after that"
    return f"{duration(end - at)} before" if end - at >= 1 else "in that second"


def clock(at: float) -> str:
    """A time of the day, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at))


def heading(figure: Figure) -> str:
    """Above a column."""
    return f"{figure.heading} {figure.unit}".strip()


def shown(figure: Figure, values: Mapping[float, float], at: float) -> str:
    """The value of a moment; "·" where it is not known."""
    return f"{values[at]:.{figure.digits}f}" if at in values else "·"


def rows(story: Story) -> list[float]:
    """The moments that the table shows: each second at the end, fewer before."""
    found = {
        max((at for at in story.times if at <= story.end - back), default=None) for back in _ROWS
    }
    return sorted(at for at in found if at is not None)


def _table(story: Story) -> Iterator[str]:
    headings = [heading(figure).split() for figure in story.shown]
    wide = [max(5, *map(len, words)) for words in headings]
    # A heading of fewer words ends with the others.
    lines = [*zip_longest(*map(reversed, headings), fillvalue="")]
    for left, words in reversed([*enumerate(lines)]):
        cells = (f"{word:>{width}}" for word, width in zip(words, wide, strict=True))
        yield f"{'' if left else 'UTC':8}  {' '.join(cells)}".rstrip()
    told: list[tuple[float, str]] = []
    for at in rows(story):
        cells = (
            f"{shown(figure, story.figures[figure.key], at):>{width}}"
            for figure, width in zip(story.shown, wide, strict=True)
        )
        told.append((at, f"{clock(at)}  {' '.join(cells)}"))
    left_out = len(story.events) - _EVENTS
    if left_out > 0:
        yield f"({left_out} earlier events: --json or --html)"
    told += [(event.at, _event(event)) for event in story.events[-_EVENTS:]]
    yield from (line for _, line in sorted(told, key=lambda each: each[0]))


def _event(event: Event) -> str:
    return f"{clock(event.at)}  {event.kind}: {event.words}"


def _pictures(story: Story) -> Iterator[str]:
    for figure in story.shown:
        values = story.figures[figure.key]
        low, high = min(values.values()), max(values.values())
        picture = sparkline([values[at] for at in sorted(values)])
        least, most = f"{low:.{figure.digits}f}", f"{high:.{figure.digits}f}"
        yield f"{heading(figure):18} {picture:{_WIDE}}  {least} to {most}"


def sparkline(values: Sequence[float]) -> str:
    """Values as a line of bars from the least to the most; each bar is the mean of its share."""
    wide = min(_WIDE, len(values))
    low, high = min(values), max(values)
    parts = [
        values[len(values) * at // wide : len(values) * (at + 1) // wide] for at in range(wide)
    ]
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((sum(part) / len(part) - low) * scale)] for part in parts)
