"""The facts of Sparks on a terminal, as `lockstep status` prints them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from lockstep.fleet.watching import SparkState
from lockstep.onhost.core import output, terminal

Facts = Mapping[str, Any]
Line = tuple[str, str]

_ENDS = {0: "done", 3: "its fallback is hot", 4: "no model is hot"}


def screen(states: Mapping[str, SparkState], width: int) -> Table:
    """All Sparks under each other: name, and lines beside it that wrap."""
    grid = Table(box=None, show_header=False, padding=(0, 2, 1, 0), pad_edge=False, width=width)
    grid.add_column(no_wrap=False, overflow="fold", max_width=max(8, width // 4), style="bold")
    grid.add_column(overflow="fold", ratio=1)
    for name, each in states.items():
        grid.add_row(name, Text("\n").join(Text(text, style) for style, text in lines(each)))
    return grid


def lines(state: SparkState) -> Iterator[Line]:
    """What one Spark says, as (style, text)."""
    if not state.is_deployed_to:
        yield "yellow", state.fault
    elif state.fault:
        yield "bold red", f"silent: {state.fault}"
    elif state.facts is None:
        yield "dim", "connecting"
    if state.facts is not None:
        if state.fault:
            yield "", f"before, at {terminal.since(state.facts['at'])}:"
        yield from _said(state.facts)


def _said(facts: Facts) -> Iterator[Line]:
    yield from _hot(facts)
    if facts["switching"]:
        holder = facts["switching"]
        words = f": {facts['phase']}" if facts["phase"] else ""
        yield "bold", f"NOW {holder['user']} is switching to {holder['target']}{words}"
    for problem in facts["problems"]:
        yield "bold red", f"BROKEN {problem}"
    for target in facts["targets"].values():
        if target["state"] not in ("hot", "off"):
            yield "yellow", f"{target['name']} {target['state']} {target['detail']}".rstrip()
        for key in ("wedge", "ended"):
            if target[key]:
                yield "yellow", f"{target['name']}: {target[key]}"
        if target["sense"]:
            yield "", target["sense"]
    for key, before in (("last_switch", "last switch "), ("last_boot", "last boot ")):
        if facts[key]:
            yield "yellow", f"{before}{facts[key]}"
    if facts["boot"]:
        yield "yellow", f"after the boot: {facts['boot']}"
    yield "", _machine(facts)
    if facts["switches"]:
        last = facts["switches"][0]
        end = _ENDS.get(last["code"], "failed")
        when = terminal.since(last["at"], facts["at"])
        yield "", f"last switch {when}: {last['person']} to {last['target']}, {end}"
    if facts["diff"]:
        yield "", _drift(facts)


def _hot(facts: Facts) -> Iterator[Line]:
    target = facts["targets"].get(facts["hot"])
    if target is None:
        yield "", "no model hot"
        return
    said = [f"{target['name']} hot since {terminal.since(target['since'], facts['at'])}"]
    engine = facts["engine"] or {}
    if engine.get("tok_s") is not None:
        said.append(f"{engine['tok_s']:.1f} tok/s")
    if engine:
        said.append(f"{engine['requests']} request{'' if engine['requests'] == 1 else 's'}")
    yield "bold green", ", ".join(said)
    if target["recipe"]:
        yield "", target["recipe"]


def _machine(facts: Facts) -> str:
    memory, disk, gpu = facts["memory_gib"], facts["disk"], facts["gpu"] or {}
    said = [f"memory {memory['available']:.1f} of {memory['total']:.1f} GiB available"]
    if disk:
        said.append(f"disk {disk['free_gib']:.0f} of {disk['total_gib']:.0f} GiB free")
    shown = [
        f"{gpu[key]:.0f} {unit}"
        for key, unit in (("temperature_c", "°C"), ("clock_mhz", "MHz"), ("power_w", "W"))
        if gpu.get(key) is not None
    ]
    if shown:
        said.append(f"GPU {' '.join(shown)}")
    held = gpu.get("held_down_by")
    return ", ".join(said) + (f", held down by {', '.join(held)}" if held else "")


def _drift(facts: Facts) -> str:
    found = facts["diff"]
    counted = Counter(item["severity"] for item in found["differences"])
    more = {"more": found["more"], "untold": len(found["unknown"])}
    # Of what only differs no Spark is known to be the wrong one.
    more["unlike another Spark"] = counted.pop("differs", 0)
    said = [f"{number} {word}" for word, number in (*counted.items(), *more.items()) if number]
    age = output.duration(max(0.0, facts["at"] - found["at"]))
    return f"drift {age} ago: {', '.join(said) or 'none'}"
