"""Evidence as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.evidence.parts import PARTS
from lockstep.files.templating import render as fill


def render(document: Mapping[str, Any]) -> str:
    """The page of a document that was scrubbed. Everything in it is escaped."""
    hosts = document["hosts"]
    parts = [
        (part, [(host["name"], host["parts"][part.key]) for host in hosts if host["answered"]])
        for part in PARTS
    ]
    # One table per part, a column per host: twins that differ are seen beside each other.
    tables = [
        (
            part,
            list(dict.fromkeys(fact["what"] for _, found in each for fact in found["facts"])),
            [{fact["what"]: fact["found"] for fact in found["facts"]} for _, found in each],
            [(name, lines) for name, found in each for lines in found["lines"]],
        )
        for part, each in parts
    ]
    return fill("page/evidence.html.j2", document=document, tables=tables)
