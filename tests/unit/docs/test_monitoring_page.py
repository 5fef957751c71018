"""The table of docs/monitoring.md is the table of metrics.

After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest THIS_FILE
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

from lockstep.inventory.monitoring import Monitoring
from lockstep.onhost.monitoring.metrics import METRICS

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
HEAD = "| metric | unit | labels | meaning | from | each |\n|---|---|---|---|---|---|\n"


def table() -> str:
    """The rows, as the page has them."""
    return "".join(
        f"| `{name}` | {metric.unit} | {', '.join(metric.labels)} | {metric.help} | "
        f"{metric.source} | {metric.every_s} s |\n"
        for name, metric in METRICS.items()
    )


def test_every_metric_is_in_the_page_as_it_is_written() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    shown, after = rest.split("\n\n", 1)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{HEAD}{table()}\n{after.lstrip()}", encoding="utf-8")
    assert f"{shown}\n" == table()


def test_every_key_is_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [item.name for item in fields(Monitoring) if f"`{item.name}`" not in text] == []
