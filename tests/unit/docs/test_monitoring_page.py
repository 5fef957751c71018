"""The table of docs/monitoring.md is the table of metrics.

After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest THIS_FILE
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

from lockstep.inventory.monitoring import Monitoring
from lockstep.onhost.monitoring.metric_table import METRICS

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
HEAD = "| metric | unit | labels | meaning | from | each |\n|---|---|---|---|---|---|\n"


def table() -> str:
    """The rows of the page's table."""
    return "".join(
        f"| `{name}` | {metric.unit} | {', '.join(metric.labels)} | {metric.help} | "
        f"{metric.source} | {metric.every_s} s |\n"
        for name, metric in METRICS.items()
    )


def test_every_metric_is_in_the_page_as_it_is_written() -> None:
    page_head, _, body = PAGE.read_text(encoding="utf-8").partition(HEAD)
    shown_table, page_tail = body.split("\n\n", 1)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(f"{page_head}{HEAD}{table()}\n{page_tail.lstrip()}", encoding="utf-8")
    assert f"{shown_table}\n" == table()


def test_every_key_is_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [item.name for item in fields(Monitoring) if f"`{item.name}`" not in text] == []
