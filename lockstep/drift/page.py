"""A diff as one self-contained HTML page."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from lockstep.drift.compare import display, fixable
from lockstep.drift.report import Report
from lockstep.drift.view import UNDECIDED, by_hand, counts, keeping, summary
from lockstep.files.templating import render_template as fill


def render(report: Report, *, now: float | None = None) -> str:
    """Render the page, and escape everything that came from a host."""
    hosts: list[dict[str, Any]] = [
        {
            "name": name,
            "counts": counts(item.severity for item in report.differences if name in item.hosts),
            "unknown": [why for host, why in report.unknown if host == name],
            "commands": by_hand(report.differences).get(name, []),
            "keeping": keeping(report.differences, name),
        }
        for name in report.hosts
    ]
    kinds = list(dict.fromkeys(item.kind for item in report.differences))
    cells = Counter((item.kind, host) for item in report.differences for host in item.hosts)
    undecided_count = sum(item.how == "decide" for item in report.differences)
    return fill(
        "page/drift.html.j2",
        inventory=report.inventory,
        summary=summary(report),
        code=report.code,
        hosts=hosts,
        kinds=[(kind, [cells[(kind, host)] for host in report.hosts]) for kind in kinds],
        differences=[(item, *display(item)) for item in report.differences],
        fixable=len(fixable(report.differences)),
        undecided=UNDECIDED.format(undecided_count) if undecided_count else "",
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)),
    )
