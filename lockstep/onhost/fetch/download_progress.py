"""The progress of a download: one line for people, which the deploy's screen reads back."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_LINE = re.compile(
    r"(?P<what>(?:weights|image) \S+): (?P<parts>\d+ of \d+ [a-z]+), "
    r"(?P<have>\d+\.\d\d) of (?P<total>\d+\.\d\d) (?P<unit>GB|MB|kB)(?:, (?P<source>.+))?"
)


@dataclass(frozen=True)
class Progress:
    """One download on one host.

    Attributes:
        subject: "weights org/name", "image ghcr.io/org/name".
        parts: "3 of 13 files".
        have: Bytes that are here.
        total: Bytes of all.
        source: Where the remaining bytes come from: "from spark1", "waiting for spark1".
    """

    subject: str
    parts: str
    have: float
    total: float
    source: str = ""

    def __str__(self) -> str:
        """Return `weights org/name: 3 of 13 files, 12.30 of 70.80 GB, from spark1`."""
        unit, power = next((entry for entry in _UNITS if self.total >= entry[1]), _UNITS[-1])
        amount = f"{self.have / power:.2f} of {self.total / power:.2f} {unit}"
        source_text = f", {self.source}" if self.source and self.have < self.total else ""
        return f"{self.subject}: {self.parts}, {amount}{source_text}"


def parse_progress(line: str) -> Progress | None:
    """Return the progress that a line tells, or None for any other line."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        return None
    power = dict(_UNITS)[match["unit"]]
    have, total = (float(match[name]) * power for name in ("have", "total"))
    return Progress(match["what"], match["parts"], have, total, match["source"] or "")
