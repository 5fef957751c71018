"""Evidence as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.evidence.parts import PARTS
from lockstep.files.templating import render_template as fill


def render(document: Mapping[str, Any]) -> str:
    """Render the page of a scrubbed document, and escape everything in it."""
    hosts = document["hosts"]
    parts = [
        (part, [(host["name"], host["parts"][part.key]) for host in hosts if host["answered"]])
        for part in PARTS
    ]
    # One table per part with a column per host shows differing hosts side by side.
    tables = [
        (
            part,
            list(
                dict.fromkeys(
                    fact["what"]
                    for _, part_document in part_facts
                    for fact in part_document["facts"]
                )
            ),
            [
                {fact["what"]: fact["found"] for fact in part_document["facts"]}
                for _, part_document in part_facts
            ],
            [
                (name, lines)
                for name, part_document in part_facts
                for lines in part_document["lines"]
            ],
        )
        for part, part_facts in parts
    ]
    return fill("page/evidence.html.j2", document=document, tables=tables)
