"""The last lines of a run: the running models, or the failed hosts with the reason."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from lockstep.checkpoints.known_checkpoints import GIB
from lockstep.core.findings import Finding, in_order
from lockstep.files.managed_file import GATEWAY_UNIT
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core.address_text import address_with_port
from lockstep.units.gateway_unit import local_url, open_url
from lockstep.units.model_variants import unit_names

WIDTH = 80
# Most columns for the label of a line in the closing table, and for the host of a finding.
_LEFT, _HOST = 24, 16
#: The operation of a host that was never reached.
CONNECTING = "connecting over SSH"
# pyinfra's words for a host that refuses the login, and for one that does not answer.
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
    """The outcome of a run for one host.

    Attributes:
        name: The host.
        failed_at: The operation at which it failed, "" while it has not.
        reason: That operation's own message.
        hold_reason: The state that it keeps, if it was held back because another host failed.
        has_returned: True if it was done and rolled back, because another host failed.
        is_rolled_back: Whether it failed, and is as before this run; None: nothing to roll back.
        generation: "old" while it lacks this run's changes, "new" once it has them, "" while
            this is unknown.
        restarts: Hot units that a run which only looks would restart.
        together: Members by hot model of a cluster that the run would stop and start again.
        news: Facts and tasks for people after the run, each in whole sentences.
        snapshot: The host's state at the end: {"rows": [(what, state), …], "ssh": the login
            command, "switch": path of switch.sh, "serves": models, "hot": those that run, "page"
            and "chat": addresses, None if there is none, "unanswered": for the digest of each
            image with an engine the reason why that could not be asked, "" if it answered}.
    """

    name: str
    failed_at: str = ""
    reason: str = ""
    hold_reason: str = ""
    has_returned: bool = False
    is_rolled_back: bool | None = None
    generation: str = ""
    restarts: Sequence[str] = ()
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)
    news: list[str] = field(default_factory=list)
    snapshot: dict[str, Any] = field(default_factory=dict)


def render(outcomes: Sequence[HostOutcome], *, again: str = "") -> str:
    """Return the closing text, or "" if there is nothing to say.

    Args:
        outcomes: The outcomes of all hosts of the run, in the inventory's order.
        again: The command that deploys to all of them, or "" if unknown.
    """
    lines: list[str] = []
    shown_outcomes = [
        outcome for outcome in outcomes if outcome.snapshot and not outcome.has_returned
    ]
    for outcome in shown_outcomes:
        table = outcome.snapshot["rows"]
        label_width = min(_LEFT, max(len(label) for label, _ in table))
        lines += ["", outcome.name, *_grid(table, (label_width,))]
    if shown_outcomes:
        command = (
            f"Next: {shown_outcomes[0].snapshot['ssh']} {shown_outcomes[0].snapshot['switch']} "
            "status"
        )
        # Broken only at a shell's continuation, because people type the line.
        lines += ["", " \\\n".join(_wrap(command, WIDTH - 2))]
    return "\n".join((*lines, *remarks(outcomes), *failures(outcomes, again)))


def remarks(outcomes: Sequence[HostOutcome]) -> list[str]:
    """Return the restarts that a run which only looks would cause, and the notes after any run."""
    lines: list[str] = []
    # Both are in the inventory's order, which is also the order of the restarts.
    if restarting := [outcome for outcome in outcomes if outcome.restarts]:
        heading = "Hot models that would be restarted, each host once the one before it serves:"
        lines += ["", heading]
        for number, outcome in enumerate(restarting, 1):
            lines += _wrap(f"{number}. {outcome.name}: {', '.join(outcome.restarts)}")
    together = {
        model: members
        for host_outcome in outcomes
        for model, members in host_outcome.together.items()
    }
    if together:
        lines += ["", *_wrap(_TOGETHER)]
        for model, members in together.items():
            lines += _wrap(f"- {model}: {', '.join(members)}")
    # A note that several hosts share appears once.
    for text in dict.fromkeys(text for outcome in outcomes for text in outcome.news):
        lines += ["", *_wrap(f"Note: {text}")]
    return lines


def unreached_remedy(message: str) -> str:
    """Return the remedy for an unreached host, by pyinfra's words; "" for another fault."""
    if _NO_LOGIN.search(message):
        return "Remedy: log in to the host by `ssh` from here first, as the same user."
    if _OFF.search(message):
        return (
            "The host is off, or its address is wrong. Remedy: check `ssh HOST`, or deploy the "
            "others with --limit."
        )
    return ""


def _active(state: Mapping[str, Any]) -> str:
    return str(state.get("ActiveState") or "missing")


def findings_table(findings: Sequence[Finding], waived_findings: Sequence[Finding] = ()) -> str:
    """Return a table of all findings of all hosts, worst first, then of those that are waived."""
    rows = [("host", "", "finding")]
    for finding in in_order(findings):
        text = finding.message + (f"\n-> {finding.remedy}" if finding.remedy else "")
        rows.append((finding.subject, finding.severity, f"{finding.code}: {text}"))
    for finding in in_order(waived_findings):
        rows.append((finding.subject, "waived", f"{finding.code}: {finding.message}"))
    host = min(_HOST, max(len(row[0]) for row in rows))
    return "\n".join(_grid(rows, (host, max(len(row[1]) for row in rows))))


def _grid(rows: Iterable[tuple[str, ...]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table without rules; each cell is folded to its column's width."""
    every = (*widths, WIDTH - sum(width + 2 for width in widths) - 2)
    for row in rows:
        cells = [_cell(text, width) for text, width in zip(row, every, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded_parts = [f"{part:{width}}" for part, width in zip(parts, every, strict=True)]
            yield (" " + "  ".join(padded_parts)).rstrip()


def _cell(text: str, width: int) -> list[str]:
    lines = (textwrap.wrap(line, width, break_on_hyphens=False) for line in text.splitlines())
    return [part for line in lines for part in line]


def failures(outcomes: Sequence[HostOutcome], again: str) -> Iterator[str]:
    """Yield the failed hosts with step and reason, the outcome of the others, and the remedy."""
    failed_outcomes = [outcome for outcome in outcomes if outcome.failed_at]
    if not failed_outcomes:
        return
    yield ""
    for outcome in failed_outcomes:
        if not outcome.hold_reason and not outcome.has_returned:
            yield from _wrap(f"FAILED  {outcome.name}: {outcome.failed_at}")
            remedy = unreached_remedy(outcome.reason) if outcome.failed_at == CONNECTING else ""
            for line in (*outcome.reason.splitlines(), *([remedy] if remedy else [])):
                yield from _wrap(line, indent=" " * 8)
    for outcome in failed_outcomes:
        if outcome.hold_reason:
            yield from _wrap(f"Held back: {outcome.name}, where {outcome.hold_reason}")
    if back := [outcome.name for outcome in failed_outcomes if outcome.has_returned]:
        yield from _wrap(f"Returned, because not all came through: {', '.join(back)}")
    if rolled_back := [outcome.name for outcome in failed_outcomes if outcome.is_rolled_back]:
        yield from _wrap(f"As before this run: {', '.join(rolled_back)}")
    if good := [
        host_outcome.name
        for host_outcome in outcomes
        if not host_outcome.failed_at and host_outcome.snapshot
    ]:
        yield from _wrap("Done on: " + ", ".join(good))
    # If all of these hosts wait for another one's failure, one host has failed.
    if all(outcome.hold_reason for outcome in failed_outcomes):
        yield from _wrap(
            "A deploy without --keep-hot gives them their turn, and so does one "
            "while nothing is hot there."
        )
        return
    yield from _end(outcomes, again)


def _end(outcomes: Sequence[HostOutcome], again: str) -> Iterator[str]:
    """Yield whether the hosts differ in their generation now, and the next step after a failure."""
    new, old = (
        ", ".join(outcome.name for outcome in outcomes if outcome.generation == generation)
        for generation in ("new", "old")
    )
    if not new or not old:
        is_rolled_back = any(outcome.is_rolled_back for outcome in outcomes)
        goes_on = "" if is_rolled_back else ": it goes on where this run ended"
        yield f"Run the same command again{goes_on}."
        return
    yield from _wrap(
        f"The hosts differ now. The new generation is on: {new}. "
        f"It is not, or not whole, on: {old}."
    )
    yield "To make them equal, go on where this run ended:"
    yield f"  {again}"


def _wrap(line: str, width: int = WIDTH, indent: str = "") -> list[str]:
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
    unchecked_images: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return the closing table of one host, made of the facts read from it.

    Args:
        plan: The host's plan by the inventory.
        address: The name that other machines use for the host.
        units: Answer of the reader `units`.
        engines: Answer of the reader `environments`.
        available: Memory, bytes.
        unchecked_images: Why the engine of a model or fallback could not be asked about its
            recipe, by name.
    """
    lines = []
    if check := engines.get("check"):
        made_of = f"vLLM {check['version']}, torch {check['torch']}, CUDA {check['cuda']}"
        lines.append(("venv engine", made_of))
    for model in plan.models:
        state = units.get(model.unit, {})
        where = f"{model.data.unit} at {address_with_port(model.data.bind, model.port)}"
        lines.append((model.name, f"{_active(state)}, {where}, {model.recipe.name}"))
    local, remote_url = local_url(plan.settings), open_url(plan.settings, address)
    urls = f"{local}, {remote_url}" if remote_url else local
    lines.append(("gateway", f"{_active(units.get(GATEWAY_UNIT, {}))}, {urls}"))
    webui = plan.settings.webui
    if webui.enabled:
        state = units.get(f"{webui.unit}.service", {})
        accounts = ", with the accounts of before" if plan.settings.webui_adopted else ""
        lines.append(
            (webui.unit, f"{_active(state)}, {address_with_port(webui.bind, webui.port)}{accounts}")
        )
    by_reason: dict[str, list[str]] = {}
    for name, reason in unchecked_images.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        lines.append(("engine not asked", f"{', '.join(names)}: the start will tell; {reason}"))
    linked_units = [unit for unit in unit_names(plan.models) if units.get(unit, {}).get("links")]
    lines.append(("hot now", ", ".join(hot_names(plan, units)) or "none"))
    lines.append(("models at boot", ", ".join(linked_units) or "none"))
    lines.append(("memory available", f"{available / GIB:.1f} GiB"))
    return lines


def hot_names(plan: HostPlan, units: Mapping[str, Any]) -> Iterator[str]:
    """Yield the running models of a host, by their names for people."""
    for model in plan.models:
        for name, unit, _ in model.forms:
            if units.get(f"{unit}.service", {}).get("ActiveState") == "active":
                yield name
