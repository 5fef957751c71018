"""The last lines of a run: the running models, or the failed hosts with the reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from lockstep.core.findings import Finding, ordered
from lockstep.files.managed_file import GATEWAY_UNIT
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Settings
from lockstep.models.known_models import GIB
from lockstep.units.gateway_unit import local_url, open_url
from lockstep.units.variants import unit_names

WIDTH = 80
# Columns for what a line of the closing table is about, and for the host of a finding, at most.
_LEFT, _HOST = 24, 16
_TOGETHER = (
    "Hot models of clusters that would go down on all members, and up again when all are done:"
)


@dataclass
class HostOutcome:
    """What became of one host in a run.

    Attributes:
        name: The host.
        failed_at: The operation at which it failed, "" while it has not.
        reason: That operation's own message.
        held: What it goes on with, where it was left as it was because another host failed.
        returned: Whether it was done and returned to what it was, because another host failed.
        generation: "old" while it lacks what this run brings, "new" once it has it, "" while
            nobody knows.
        restarts: Hot units that a run which only looks would restart.
        together: Hot models of clusters that it would take down and start again: model → members.
        snapshot: What was read back from the host at the end: {"rows": [(what, state), …],
            "ssh": how to log in, "switch": path of switch.sh, "unanswered": digest of each image
            with an engine → why that could not be asked, "" where it answered}.
    """

    name: str
    failed_at: str = ""
    reason: str = ""
    held: str = ""
    returned: bool = False
    generation: str = ""
    restarts: Sequence[str] = ()
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)
    snapshot: dict[str, Any] = field(default_factory=dict)


def render(outcomes: Sequence[HostOutcome], *, again: str = "", width: int = WIDTH) -> str:
    """The closing text, at most ``width`` columns wide; "" where there is nothing to say.

    Args:
        outcomes: Of all hosts of the run, in the inventory's order.
        again: The command that deploys to all of them; "" where it is not known.
        width: Columns.
    """
    parts = []
    shown = [outcome for outcome in outcomes if outcome.snapshot and not outcome.returned]
    if shown:
        parts += [_table(outcome, width) for outcome in shown]
        parts.append(_next(shown[0], width))
    if any(outcome.restarts for outcome in outcomes):
        parts.append(_restarts(outcomes, width))
    if any(outcome.together for outcome in outcomes):
        parts.append(_together(outcomes, width))
    failed = [outcome for outcome in outcomes if outcome.failed_at]
    if failed:
        good = [outcome.name for outcome in outcomes if not outcome.failed_at and outcome.snapshot]
        parts.append(_failures(failed, good, width))
        parts.append(_end(outcomes, again, width))
    return "\n".join(parts)


def _table(outcome: HostOutcome, width: int) -> str:
    rows = outcome.snapshot["rows"]
    left = min(_LEFT, max(len(what) for what, _ in rows))
    return "\n".join(("", outcome.name, *_grid(rows, (left,), width)))


def _next(first: HostOutcome, width: int) -> str:
    command = f"Next: {first.snapshot['ssh']} {first.snapshot['switch']} status"
    # Broken only where a shell would go on: the line is there to be typed.
    return "\n" + " \\\n".join(_wrapped(command, width - 2))


def _active(state: Mapping[str, Any]) -> str:
    return str(state.get("ActiveState") or "missing")


def findings_table(
    findings: Sequence[Finding], waived: Sequence[Finding] = (), *, width: int = WIDTH
) -> str:
    """All findings of all hosts, worst first, and then those that the inventory waives."""
    rows = [("host", "", "finding")]
    for finding in ordered(findings):
        text = finding.message + (f"\n-> {finding.remedy}" if finding.remedy else "")
        rows.append((finding.subject, finding.severity, f"{finding.code}: {text}"))
    for finding in ordered(waived):
        rows.append((finding.subject, "waived", f"{finding.code}: {finding.message}"))
    host = min(_HOST, max(len(row[0]) for row in rows))
    return "\n".join(_grid(rows, (host, max(len(row[1]) for row in rows)), width))


def _grid(
    rows: Iterable[tuple[str, ...]], widths: Sequence[int], width: int = WIDTH
) -> Iterator[str]:
    """Lines of a table without rules: each cell folded to its column, the last to what is left."""
    left = width - sum(each + 2 for each in widths) - 2
    for row in rows:
        cells = [_cell(text, each) for text, each in zip(row, (*widths, left), strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [f"{part:{each}}" for part, each in zip(parts, (*widths, left), strict=True)]
            yield (" " + "  ".join(padded)).rstrip()


def _cell(text: str, width: int) -> list[str]:
    lines = (textwrap.wrap(line, width, break_on_hyphens=False) for line in text.splitlines())
    return [part for line in lines for part in line]


def _failures(failed: Sequence[HostOutcome], good: Sequence[str], width: int) -> str:
    lines = [""]
    for outcome in failed:
        if outcome.held or outcome.returned:
            continue
        lines += _wrapped(f"FAILED  {outcome.name}: {outcome.failed_at}", width)
        for line in outcome.reason.splitlines():
            lines += _wrapped(line, width, " " * 8)
    for outcome in failed:
        if outcome.held:
            lines += _wrapped(f"Held back: {outcome.name}, where {outcome.held}", width)
    if back := [outcome.name for outcome in failed if outcome.returned]:
        lines += _wrapped(f"Returned, because not all came through: {', '.join(back)}", width)
    if good:
        lines += _wrapped("Done on: " + ", ".join(good), width)
    return "\n".join(lines)


def _end(outcomes: Sequence[HostOutcome], again: str, width: int) -> str:
    """Whether the hosts are of two generations now, and what to do after a failure."""
    new, old = (
        [outcome.name for outcome in outcomes if outcome.generation == generation]
        for generation in ("new", "old")
    )
    if not new or not old:
        return "Run the same command again: it goes on where this run ended."
    lines = _wrapped(
        "The hosts differ now. The new generation is on: "
        f"{', '.join(new)}. The one before is still on: {', '.join(old)}.",
        width,
    )
    return "\n".join([*lines, "To make them equal, go on where this run ended:", f"  {again}"])


def _restarts(outcomes: Sequence[HostOutcome], width: int) -> str:
    """What a run would restart, in the inventory's order, which is also that of the restarts."""
    lines = ["", "Hot models that would be restarted, each host once the one before it serves:"]
    concerned = [outcome for outcome in outcomes if outcome.restarts]
    for number, outcome in enumerate(concerned, 1):
        lines += _wrapped(f"{number}. {outcome.name}: {', '.join(outcome.restarts)}", width)
    return "\n".join(lines)


def _together(outcomes: Sequence[HostOutcome], width: int) -> str:
    """What a run would restart on several hosts at once, each model named once."""
    lines = ["", *_wrapped(_TOGETHER, width)]
    found = {model: members for each in outcomes for model, members in each.together.items()}
    for model, members in found.items():
        lines += _wrapped(f"- {model}: {', '.join(members)}", width)
    return "\n".join(lines)


def _wrapped(line: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        line,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        # Names of hosts and flags stay whole, to be searched for and copied.
        break_on_hyphens=False,
    )


def rows(
    plan: HostPlan,
    units: Mapping[str, Any],
    engines: Mapping[str, Any],
    available: int,
    unasked: Mapping[str, str],
) -> list[tuple[str, str]]:
    """The closing table of one host, made of what was read from it.

    Args:
        plan: What the inventory asks for.
        units: Answer of the reader `units`.
        engines: Answer of the reader `environments`.
        available: Memory, bytes.
        unasked: Target or fallback → why its engine could not be asked about its recipe.
    """
    check = engines.get("check") or {}
    lines = []
    if check:
        lines.append(
            (
                "venv engine",
                f"vLLM {check['version']}, torch {check['torch']}, CUDA {check['cuda']}",
            )
        )
    for target in plan.targets:
        state = units.get(target.unit, {})
        where = f"{target.data.unit} at {target.data.bind}:{target.port}"
        lines.append((target.name, f"{_active(state)}, {where}, {target.recipe.name}"))
    lines.append(("gateway", f"{_active(units.get(GATEWAY_UNIT, {}))}, {_at(plan.settings)}"))
    if plan.settings.webui.enabled:
        webui = plan.settings.webui
        state = units.get(f"{webui.unit}.service", {})
        accounts = ", with the accounts of before" if plan.settings.webui_adopted else ""
        lines.append((webui.unit, f"{_active(state)}, {webui.bind}:{webui.port}{accounts}"))
    lines += _unasked(unasked)
    linked = [unit for unit in unit_names(plan.targets) if units.get(unit, {}).get("links")]
    lines.append(("hot now", ", ".join(_hot(plan, units)) or "none"))
    lines.append(("models at boot", ", ".join(linked) or "none"))
    lines.append(("memory available", f"{available / GIB:.1f} GiB"))
    return lines


def _at(settings: Settings) -> str:
    """Where the gateway is asked: on the host itself, and by other machines."""
    url = open_url(settings)
    return local_url(settings) + (f", {url}" if url else "")


def _hot(plan: HostPlan, units: Mapping[str, Any]) -> Iterator[str]:
    for target in plan.targets:
        for name, unit, _ in target.forms:
            if units.get(f"{unit}.service", {}).get("ActiveState") == "active":
                yield name


def _unasked(unasked: Mapping[str, str]) -> list[tuple[str, str]]:
    """The targets whose engine could not be asked about its recipe, by reason."""
    names: dict[str, list[str]] = {}
    for name, reason in unasked.items():
        names.setdefault(reason, []).append(name)
    return [
        ("engine not asked", f"{', '.join(found)}: the start will tell; {reason}")
        for reason, found in names.items()
    ]
