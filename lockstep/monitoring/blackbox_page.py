"""The last minutes of a Spark as one self-contained HTML page."""

from __future__ import annotations

from lockstep.files.templating import render_template as fill
from lockstep.monitoring.blackbox import Story, Values
from lockstep.monitoring.blackbox_text import clock, heading, rows, summary, value_text

WIDTH, HEIGHT = 720, 90


def render(story: Story) -> str:
    """Return the page. Everything in it is escaped."""
    begin = min(story.times, default=story.end)
    pictures = [
        (
            heading(figure),
            f"{min(values.values()):.{figure.digits}f}",
            f"{max(values.values()):.{figure.digits}f}",
            path(values, begin, story.end),
        )
        for figure in story.known_figures
        if (values := story.figures[figure.key])
    ]
    cells = [
        (
            clock(at),
            [value_text(figure, story.figures[figure.key], at) for figure in story.known_figures],
        )
        for at in rows(story)
    ]
    first, *more = summary(story)
    return fill(
        "page/blackbox.html.j2",
        story=story,
        first=first,
        more=more,
        begin=clock(begin),
        end=clock(story.end),
        headings=[heading(figure) for figure in story.known_figures],
        rows=cells,
        events=[(clock(event.at), event) for event in story.events],
        pictures=pictures,
        size=f"0 0 {WIDTH} {HEIGHT}",
    )


def path(values: Values, begin: float, end: float) -> str:
    """Return a line through the values, the least at the bottom, as SVG's path data."""
    low, high = min(values.values()), max(values.values())
    wide, tall = (end - begin) or 1.0, (high - low) or 1.0
    points = [
        f"{(at - begin) / wide * WIDTH:.1f} {HEIGHT - (values[at] - low) / tall * HEIGHT:.1f}"
        for at in sorted(values)
    ]
    return "M" + "L".join(points)
