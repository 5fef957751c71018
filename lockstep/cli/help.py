"""`lockstep help`: the pages of docs, for installations without a checkout."""

from __future__ import annotations

import difflib
import re

import click

from lockstep.core.errors import LockstepError
from lockstep.core.product import DOCS

_HEADING = re.compile(r"(#+) (.*)")


@click.command()
@click.argument("page", required=False)
@click.argument("section", required=False)
def help(page: str | None, section: str | None) -> None:
    """Show a PAGE of the documentation, or one SECTION.

    Messages name them: `lockstep help monitoring black-box`. Without a PAGE the command lists all
    pages with their subjects. `lockstep COMMAND --help` has the options of a command.
    """
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix(): path for path in DOCS.rglob("[a-z]*.md")
    }
    if page is None:
        wide = max(map(len, pages))
        for name, path in sorted(pages.items()):
            with path.open(encoding="utf-8") as lines:
                click.echo(f"{name:{wide}}  {next(lines).lstrip('# ').rstrip()}")
        return
    if page not in pages:
        raise _absent("page", page, list(pages))
    text = pages[page].read_text(encoding="utf-8")
    if section is not None:
        sections = _sections(text)
        if section not in sections:
            raise _absent(f"section of {page}", section, list(sections))
        text = sections[section]
    click.echo_via_pager(text)


def _absent(kind: str, name: str, topics: list[str]) -> LockstepError:
    near = difflib.get_close_matches(name, topics, n=1)
    return LockstepError(
        f"no such {kind}",
        found=repr(name),
        allowed=", ".join(sorted(topics)),
        remedy=f"Did you mean {near[0]!r}?" if near else "",
    )


def _sections(text: str) -> dict[str, str]:
    """Return the text below each heading of Markdown by anchor, up to the next heading of its rank.

    A `#` comment in a block of code is no heading.
    """
    lines, heads, in_code = text.splitlines(keepends=True), [], False
    for at, line in enumerate(lines):
        in_code ^= line.lstrip().startswith("```")
        if not in_code and (head := _HEADING.match(line)):
            anchor = re.sub(r"[^\w\- ]", "", head[2].lower()).replace(" ", "-")
            heads.append((at, len(head[1]), anchor))
    ends = (
        next((at for at, next_level, _ in heads[number:] if next_level <= level), len(lines))
        for number, (_, level, _) in enumerate(heads, start=1)
    )
    return {
        anchor: "".join(lines[at:end]) for (at, _, anchor), end in zip(heads, ends, strict=True)
    }
