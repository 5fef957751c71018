"""The last lines of a run: the running models, or the failed hosts with the reason."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from lockstep.core.findings import Finding, ordered
from lockstep.files.managed_file import GATEWAY_UNIT
from lockstep.inventory.host import HostPlan
from lockstep.models.known_models import GIB
from lockstep.onhost.core.address import at
from lockstep.units.gateway_unit import local_url, open_url
from lockstep.units.variants import unit_names

WIDTH = 80
# Columns for what a line of the closing table is about, and for the host of a finding, at most.
_LEFT, _HOST = 24, 16
#: The operation of a host that was never reached.
CONNECTING = "connecting over SSH"
# What pyinfra says of a host that does not let us in, and of one that does not answer.
_NO_LOGIN = re.compile(r"Authentication error|[Hh]ost key|SSH error")
_OFF = re.compile(
    r"resolve hostname|Unable to connect|Could not connect|timed out|No route to host"
    r"|Connection refused"
)
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
        news: What people must know or do after it, each in whole sentences.
        snapshot: What was read back from the host at the end: {"rows": [(what, state), …],
            "ssh": how to log in, "switch": path of switch.sh, "serves": models, "hot": those that
            run, "page" and "chat": addresses, None where there is none, "unanswered": digest of
            each image with an engine → why that could not be asked, "" where it answered}.
    """

    name: str
    failed_at: str = ""
    reason: str = ""
    held: str = ""
    returned: bool = False
    generation: str = ""
    restarts: Sequence[str] = ()
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)
    news: list[str] = field(default_factory=list)
    snapshot: dict[str, Any] = field(default_factory=dict)


def render(outcomes: Sequence[HostOutcome], *, again: str = "") -> str:
    """The closing text; "" where there is nothing to say.

    Args:
        outcomes: Of all hosts of the run, in the inventory's order.
        again: The command that deploys to all of them; "" where it is not known.
    """
    lines: list[str] = []
    shown = [outcome for outcome in outcomes if outcome.snapshot and not outcome.returned]
    for outcome in shown:
        table = outcome.snapshot["rows"]
        left = min(_LEFT, max(len(what) for what, _ in table))
        lines += ["", outcome.name, *_grid(table, (left,))]
    if shown:
        command = f"Next: {shown[0].snapshot['ssh']} {shown[0].snapshot['switch']} status"
        # Broken only where a shell would go on: the line is there to be typed.
        lines += ["", " \\\n".join(_wrapped(command, WIDTH - 2))]
    return "\n".join((*lines, *remarks(outcomes), *failures(outcomes, again)))


def remarks(outcomes: Sequence[HostOutcome]) -> list[str]:
    """What a run that only looks would restart, and what people must know after any."""
    lines: list[str] = []
    # Both in the inventory's order, which is also that of the restarts.
    if restarting := [outcome for outcome in outcomes if outcome.restarts]:
        told = "Hot models that would be restarted, each host once the one before it serves:"
        lines += ["", told]
        for number, outcome in enumerate(restarting, 1):
            lines += _wrapped(f"{number}. {outcome.name}: {', '.join(outcome.restarts)}")
    together = {model: members for each in outcomes for model, members in each.together.items()}
    if together:
        lines += ["", *_wrapped(_TOGETHER)]
        for model, members in together.items():
            lines += _wrapped(f"- {model}: {', '.join(members)}")
    # What several hosts have to say alike is said once.
    for text in dict.fromkeys(text for outcome in outcomes for text in outcome.news):
        lines += ["", *_wrapped(f"Note: {text}")]
    return lines


def unreached(said: str) -> str:
    """The remedy for a host that was not reached, by pyinfra's words; "" for another fault."""
    if _NO_LOGIN.search(said):
        return "Remedy: log in to the host by `ssh` from here first, as the same user."
    if _OFF.search(said):
        return (
            "The host is off, or its address is wrong. Remedy: check `ssh HOST`, or deploy the "
            "others with --limit."
        )
    return ""


def _active(state: Mapping[str, Any]) -> str:
    return str(state.get("ActiveState") or "missing")


def findings_table(findings: Sequence[Finding], waived: Sequence[Finding] = ()) -> str:
    """All findings of all hosts, worst first, and then those that the inventory waives."""
    rows = [("host", "", "finding")]
    for finding in ordered(findings):
        text = finding.message + (f"\n-> {finding.remedy}" if finding.remedy else "")
        rows.append((finding.subject, finding.severity, f"{finding.code}: {text}"))
    for finding in ordered(waived):
        rows.append((finding.subject, "waived", f"{finding.code}: {finding.message}"))
    host = min(_HOST, max(len(row[0]) for row in rows))
    return "\n".join(_grid(rows, (host, max(len(row[1]) for row in rows))))


def _grid(rows: Iterable[tuple[str, ...]], widths: Sequence[int]) -> Iterator[str]:
    """Lines of a table without rules: each cell folded to its column, the last to what is left."""
    every = (*widths, WIDTH - sum(each + 2 for each in widths) - 2)
    for row in rows:
        cells = [_cell(text, each) for text, each in zip(row, every, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [f"{part:{each}}" for part, each in zip(parts, every, strict=True)]
            yield (" " + "  ".join(padded)).rstrip()


def _cell(text: str, width: int) -> list[str]:
    lines = (textwrap.wrap(line, width, break_on_hyphens=False) for line in text.splitlines())
    return [part for line in lines for part in line]


def failures(outcomes: Sequence[HostOutcome], again: str) -> Iterator[str]:
    """The failed hosts with step and reason, what became of the others, and what to do."""
    failed = [outcome for outcome in outcomes if outcome.failed_at]
    if not failed:
        return
    yield ""
    for outcome in failed:
        if not outcome.held and not outcome.returned:
            yield from _wrapped(f"FAILED  {outcome.name}: {outcome.failed_at}")
            remedy = unreached(outcome.reason) if outcome.failed_at == CONNECTING else ""
            for line in (*outcome.reason.splitlines(), *([remedy] if remedy else [])):
                yield from _wrapped(line, indent=" " * 8)
    for outcome in failed:
        if outcome.held:
            yield from _wrapped(f"Held back: {outcome.name}, where {outcome.held}")
    if back := [outcome.name for outcome in failed if outcome.returned]:
        yield from _wrapped(f"Returned, because not all came through: {', '.join(back)}")
    if good := [each.name for each in outcomes if not each.failed_at and each.snapshot]:
        yield from _wrapped("Done on: " + ", ".join(good))
    # Of hosts that wait for another one's failure, one has failed.
    if all(outcome.held for outcome in failed):
        yield from _wrapped(
            "A deploy without --keep-hot gives them their turn, and so does one "
            "while nothing is hot there."
        )
        return
    yield from _end(outcomes, again)


def _end(outcomes: Sequence[HostOutcome], again: str) -> Iterator[str]:
    """Whether the hosts are of two generations now, and what to do after a failure."""
    new, old = (
        ", ".join(outcome.name for outcome in outcomes if outcome.generation == generation)
        for generation in ("new", "old")
    )
    if not new or not old:
        yield "Run the same command again: it goes on where this run ended."
        return
    yield from _wrapped(
        f"The hosts differ now. The new generation is on: {new}. "
        f"It is not, or not whole, on: {old}."
    )
    yield "To make them equal, go on where this run ended:"
    yield f"  {again}"


def _wrapped(line: str, width: int = WIDTH, indent: str = "") -> list[str]:
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
    address: str,
    units: Mapping[str, Any],
    engines: Mapping[str, Any],
    available: int,
    unasked: Mapping[str, str],
) -> list[tuple[str, str]]:
    """The closing table of one host, made of what was read from it.

    Args:
        plan: What the inventory asks for.
        address: What other machines call the host.
        units: Answer of the reader `units`.
        engines: Answer of the reader `environments`.
        available: Memory, bytes.
        unasked: Target or fallback → why its engine could not be asked about its recipe.
    """
    lines = []
    if check := engines.get("check"):
        made_of = f"vLLM {check['version']}, torch {check['torch']}, CUDA {check['cuda']}"
        lines.append(("venv engine", made_of))
    for target in plan.targets:
        state = units.get(target.unit, {})
        where = f"{target.data.unit} at {at(target.data.bind, target.port)}"
        lines.append((target.name, f"{_active(state)}, {where}, {target.recipe.name}"))
    local, other = local_url(plan.settings), open_url(plan.settings, address)
    urls = f"{local}, {other}" if other else local
    lines.append(("gateway", f"{_active(units.get(GATEWAY_UNIT, {}))}, {urls}"))
    webui = plan.settings.webui
    if webui.enabled:
        state = units.get(f"{webui.unit}.service", {})
        accounts = ", with the accounts of before" if plan.settings.webui_adopted else ""
        lines.append((webui.unit, f"{_active(state)}, {at(webui.bind, webui.port)}{accounts}"))
    by_reason: dict[str, list[str]] = {}
    for name, reason in unasked.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        lines.append(("engine not asked", f"{', '.join(names)}: the start will tell; {reason}"))
    linked = [unit for unit in unit_names(plan.targets) if units.get(unit, {}).get("links")]
    lines.append(("hot now", ", ".join(hot_names(plan, units)) or "none"))
    lines.append(("models at boot", ", ".join(linked) or "none"))
    lines.append(("memory available", f"{available / GIB:.1f} GiB"))
    return lines


def hot_names(plan: HostPlan, units: Mapping[str, Any]) -> Iterator[str]:
    """The models of a host that run, as people call them."""
    for target in plan.targets:
        for name, unit, _ in target.forms:
            if units.get(f"{unit}.service", {}).get("ActiveState") == "active":
                yield name
