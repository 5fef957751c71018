"""What is wrong, or worth knowing, before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing to act on.

    Attributes:
        code: Stable name ("disk-short"), by which it can be waived or looked up.
        severity: "error" stops a deploy, "warning" does not.
        subject: Host, recipe or target it is about.
        message: What was expected and what was found, with numbers and units.
        remedy: The next step.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: str = ""


def table(findings: Sequence[Finding], *, width: int = 80) -> str:
    """All findings as text that fits a terminal of ``width`` columns."""
    grid = Table(box=None, padding=(0, 1), width=width, show_header=True, header_style="bold")
    grid.add_column("host", no_wrap=True, overflow="ellipsis", max_width=16)
    grid.add_column("", no_wrap=True)
    grid.add_column("finding")
    for finding in findings:
        text = finding.message + (f"\n→ {finding.remedy}" if finding.remedy else "")
        grid.add_row(finding.subject, finding.severity, f"{finding.code}: {text}")
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    return captured.get()
