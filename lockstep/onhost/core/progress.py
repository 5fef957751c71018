"""How far a download is: one line that people read, and that the deploy's screen reads back."""

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
        what: "weights org/name", "image ghcr.io/org/name".
        parts: "3 of 13 files".
        have: Bytes that are here.
        total: Bytes of all.
        source: Where the rest comes from: "from spark1", "waiting for spark1".
    """

    what: str
    parts: str
    have: float
    total: float
    source: str = ""

    def __str__(self) -> str:
        """`weights org/name: 3 of 13 files, 12.30 of 70.80 GB, from spark1`."""
        unit, power = next((each for each in _UNITS if self.total >= each[1]), _UNITS[-1])
        amount = f"{self.have / power:.2f} of {self.total / power:.2f} {unit}"
        rest = f", {self.source}" if self.source and self.have < self.total else ""
        return f"{self.what}: {self.parts}, {amount}{rest}"


def read_back(line: str) -> Progress | None:
    """The progress that a line tells; None where it tells of something else."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        return None
    power = dict(_UNITS)[found["unit"]]
    have, total = (float(found[name]) * power for name in ("have", "total"))
    return Progress(found["what"], found["parts"], have, total, found["source"] or "")
