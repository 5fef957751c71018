"""Lines of a kernel's log as netconsole sends them: "6,339,5140900,-;NET: Registered ..."."""

from __future__ import annotations

import re
from typing import NamedTuple

LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_LINE = re.compile(
    r"(?P<head>(?P<priority>\d+),\d+,\d+,[^;,]*)(?P<more>[^;]*);(?P<body>.*)", re.DOTALL
)


class KernelMessage(NamedTuple):
    """A message: its level (a name of `LEVELS`), and its words."""

    level: str
    words: str


def parse(line: str) -> KernelMessage | None:
    """Parse one line of the receiver's journal; None for a line that continues the one before.

    A message larger than a packet comes in pieces, each with the head of the whole message. Only
    the last piece ends a line, so the pieces are one line here.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        # " DEVICE=+pci:0000:01:00.0" belongs to the message before.
        return None if line.startswith(" ") else KernelMessage("", line)
    body = match["body"]
    if "ncfrag=" in match["more"]:
        body = re.sub(rf"{re.escape(match['head'])},[^;]*ncfrag=\d+/\d+;", "", body)
    return KernelMessage(LEVELS[int(match["priority"]) & 7], body.strip())
