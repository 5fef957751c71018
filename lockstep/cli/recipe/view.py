"""The view of one recipe on a terminal and as data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import click
from rich.text import Text

from lockstep.checkpoints import weight_files
from lockstep.core.terminal import console, print_indented
from lockstep.files.systemd_quoting import split_before_flags
from lockstep.fit.fit import Fit
from lockstep.lock.pins import CheckpointPin
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import kind_of
from lockstep.recipes.recipe_file import Recipe


def as_row(item: Recipe, answer: Fit | None) -> dict[str, object]:
    """Return a recipe's row of a list, for programs."""
    return {
        "name": item.name,
        "model": item.model,
        "revision": item.model_revision,
        "engine": item.engine.name if item.engine else None,
        "runtime": item.runtime,
        "licence": item.lockstep.licence,
        "licence_source": item.lockstep.licence_source,
        "known_bad": item.lockstep.known_bad,
        "fit": answer,
    }


def print_recipe(
    item: Recipe,
    answer: Fit | None,
    argv: tuple[str, ...],
    variables: Mapping[str, str],
    pins: Mapping[str, CheckpointPin],
) -> None:
    """Print the whole recipe on a terminal, 80 columns wide."""
    output = console()
    output.print(Text.assemble((item.name, "bold"), f"\n{item.description}\n"))
    _pair("model", item.model)
    _pair("revision", item.model_revision or "not pinned")
    _pair("runs in", item.container or "a venv of the host")
    if argv:
        _pair("kind", kind_of(item, argv))
    _pair("licence", item.lockstep.licence or "unknown")
    if item.lockstep.licence_source:
        print_indented(f"source: {item.lockstep.licence_source}", 11)
    if draft := draft_of(item):
        _pair("draft", f"{draft.model}, licence {draft.licence or 'unknown'}")
    for name, pin in pins.items():
        _pair("fetched", f"{name}, {pin.size / 1e9:.1f} GB in {len(pin.files)} files")
        if pin.left_out:
            print_indented(f"left out: {weight_files.as_text(pin.left_out)}", 11)
    if argv and not pins and not item.model.startswith("/"):
        _pair("fetched", f"not locked here; see `lockstep model inspect {item.model}`")
    if answer:
        _print_fit(answer)
    if argv:
        output.print("\ncommand", style="bold")
        # Each flag stands on a line with its values.
        click.echo("  " + " \\\n    ".join(map(shlex.join, split_before_flags(argv))))
    if variables:
        output.print("\nenvironment", style="bold")
        for key, value in variables.items():
            click.echo(f"  {key}={value}")
    if item.lockstep.figures:
        output.print("\npublished", style="bold")
    for figure in item.lockstep.figures:
        text = f"{figure.quantity}: {figure.value} {figure.unit}"
        print_indented(f"{text} ({figure.kind}, {figure.source}, {figure.date})")


def _pair(name: str, value: str) -> None:
    click.echo(f"{name:<10} {value}")


def _print_fit(answer: Fit) -> None:
    _pair("memory", f"{answer.verdict} ({answer.hosts} Spark(s), GiB per Spark)")
    for term in answer.terms:
        _number(term.gib, f"{term.name}: {term.source}")
    if answer.budget_gib:
        _number(answer.budget_gib, "the engine may take")
    if answer.room_gib:
        worse, better = answer.room_gib
        upper = f" ({better:.1f} in the better case)" if better - worse > 0.05 else ""
        _number(worse, f"left for the KV cache{upper}")
    if answer.sequence_gib is not None:
        cache_text = f"per sequence of {answer.context} tokens; {answer.sequences} fit"
        _number(answer.sequence_gib, cache_text)
    at_all = answer.loads_gib < answer.needs_gib - 0.05
    less = f" ({answer.loads_gib:.1f} to load at all)" if at_all else ""
    _number(
        float(rounded_up(answer.needs_gib)),
        f"must be available when it starts, for this context{less}",
    )
    if answer.host_use_gib:
        _number(answer.host_use_gib, "in use on the host while it serves")
    for reason in answer.reasons:
        print_indented(reason, 11)


def _number(gib: float, description: str) -> None:
    print_indented(f"{gib:8.1f}  {description}", 2)
