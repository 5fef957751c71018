"""The transfer of measured figures into a recipe of the catalogue; the text keeps its comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from lockstep.bench.prompts import TECHNICAL
from lockstep.bench.results import Result, ResultError
from lockstep.core.errors import RecipeError
from lockstep.core.figures import Figure
from lockstep.recipes.recipe_file import parse

_LIST = re.compile(r"^  figures:[ \t]*\n((?:    .*\n|[ \t]*\n)*)", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9][\w .%/()+-]*")


def figures(result: Result) -> tuple[Figure, ...]:
    """Return the figures that a result gives about its recipe; suites without a score give none."""
    about = result.subject
    lock = f", lock {about.lock[:12]}" if about.lock else ""
    source = f"lockstep bench on {about.host or about.url}, {about.engine} {about.version}{lock}"
    date = result.began[:10]
    return tuple(Figure(*figure, source, date, "measured") for figure in _values(result))


def _values(result: Result) -> Iterator[tuple[str, float, str]]:
    summaries = {suite.name: suite.summary for suite in result.suites if suite.summary}
    decode = summaries.get("decode", {})
    if decode:
        technical, tokens = decode["by_shape"][TECHNICAL], decode["tokens"]
        speed = round(technical["decode_tok_s"]["mean"], 1)
        yield f"decode, one stream, {tokens} tokens", speed, "tok/s"
        if technical["first_token_s"]:
            yield "time to first token", round(technical["first_token_s"]["mean"], 3), "s"
    acceptance = summaries.get("speculation", {}).get("acceptance")
    if acceptance is not None:
        yield "draft tokens accepted, four prompt shapes", round(100 * acceptance["mean"], 1), "%"
    tools = summaries.get("tools")
    if tools:
        yield "valid tool calls", round(100 * tools["valid"] / tools["calls"]), "%"
    coding = summaries.get("coding")
    if coding:
        passed_text = f"exercises passed of {coding['exercises']}, one attempt"
        yield passed_text, float(coding["full_passed"]), "exercises"


def with_figures(text: str, new: Sequence[Figure], path: Path) -> str:
    """Return a recipe's text with these figures in place of measured ones of the same names.

    Raises:
        ResultError: the recipe's list of figures is not in the catalogue's form.
    """
    earlier_figures = parse(text, path).lockstep.figures
    match = _LIST.search(text)
    lines = match[1].splitlines(keepends=True) if match else []
    names = {figure.quantity for figure in new}
    quoted_names = [_quote(name) for name in names]
    kept_lines = [
        line
        for line in lines
        if "kind: measured" not in line or not any(name in line for name in quoted_names)
    ]
    while kept_lines and not kept_lines[-1].strip():
        kept_lines.pop()
    block = "  figures:\n" + "".join([*kept_lines, *(_line(figure) for figure in new)])
    if match:
        edited_text = text[: match.start()] + block + text[match.end() :]
    else:
        heading = "" if "\nlockstep:" in text else "\nlockstep:\n"
        edited_text = text.rstrip("\n") + "\n" + heading + block
    wanted_figures = [
        old_figure
        for old_figure in earlier_figures
        if old_figure.kind != "measured" or old_figure.quantity not in names
    ] + [*new]
    try:
        whole = list(parse(edited_text, path).lockstep.figures) == wanted_figures
    except RecipeError:
        whole = False
    if not whole:
        raise ResultError(
            "the recipe's figures cannot be edited without touching something else",
            where=str(path),
            remedy="Write one figure per line under `figures:`, or add these lines by hand: "
            + " ".join(_line(figure).strip() for figure in new),
        )
    return edited_text


def _line(figure: Figure) -> str:
    pairs = {key: _quote(value) for key, value in asdict(figure).items()}
    return "    - {" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}\n"


def _quote(value: str | float) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
