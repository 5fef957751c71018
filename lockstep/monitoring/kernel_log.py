"""Lines of a kernel's log as netconsole sends them: "6,339,5140900,-;NET: Registered ..."."""

from __future__ import annotations

import re
from typing import NamedTuple

LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_LINE = re.compile(
    r"(?P<head>(?P<priority>\d+),\d+,\d+,[^;,]*)(?P<more>[^;]*);(?P<body>.*)", re.DOTALL
)


class Said(NamedTuple):
    """One message: its level, a name of `LEVELS`, and its words."""

    level: str
    words: str


def parse(line: str) -> Said | None:
    """One line of the receiver's journal; None for what only belongs to the line before.

    A message of more than a packet comes in pieces, each with the head of the whole: as no piece
    but the last ends a line, the pieces are one line here.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        # " DEVICE=+pci:0000:01:00.0" says more of the message before.
        return None if line.startswith(" ") else Said("", line)
    body = found["body"]
    if "ncfrag=" in found["more"]:
        body = re.sub(rf"{re.escape(found['head'])},[^;]*ncfrag=\d+/\d+;", "", body)
    return Said(LEVELS[int(found["priority"]) & 7], body.strip())
