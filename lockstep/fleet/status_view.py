"""The facts of Sparks on a terminal, as `lockstep status` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from lockstep.fleet.watching import SparkState
from lockstep.onhost.core import event_lines, terminal_lines

Facts = Mapping[str, Any]
Line = tuple[str, str]

_ENDS = {0: "done", 3: "its fallback is hot", 4: "no model is hot"}


def screen(states: Mapping[str, SparkState], width: int) -> Table:
    """Return a table of all Sparks: the name, and beside it lines that wrap."""
    grid = Table(box=None, show_header=False, padding=(0, 2, 1, 0), pad_edge=False, width=width)
    grid.add_column(no_wrap=False, overflow="fold", max_width=max(8, width // 4), style="bold")
    grid.add_column(overflow="fold", ratio=1)
    for name, state in states.items():
        grid.add_row(name, Text("\n").join(Text(text, style) for style, text in lines(state)))
    return grid


def lines(state: SparkState) -> Iterator[Line]:
    """Yield the lines of one Spark, as (style, text)."""
    if not state.is_deployed_to:
        yield "yellow", state.fault
    elif state.fault:
        yield "bold red", f"silent: {state.fault}"
    elif state.facts is None:
        yield "dim", "connecting"
    if state.facts is not None:
        if state.fault:
            yield "", f"before, at {terminal_lines.moment_with_age(state.facts['at'])}:"
        yield from _lines_of(state.facts)


def _lines_of(facts: Facts) -> Iterator[Line]:
    yield from _hot(facts)
    if facts["switching"]:
        holder = facts["switching"]
        words = f": {facts['phase']}" if facts["phase"] else ""
        yield "bold", f"NOW {holder['user']} is switching to {holder['model']}{words}"
    for problem in facts["problems"]:
        yield "bold red", f"BROKEN {problem}"
    for model in facts["models"].values():
        if model["state"] not in ("hot", "off"):
            yield "yellow", f"{model['name']} {model['state']} {model['detail']}".rstrip()
        for key in ("wedge", "memory_kill"):
            if model[key]:
                yield "yellow", f"{model['name']}: {model[key]}"
        if model["sense"]:
            yield "", model["sense"]
    for key, prefix in (("last_switch", "last switch "), ("last_boot", "last boot ")):
        if facts[key]:
            yield "yellow", f"{prefix}{facts[key]}"
    if facts["boot"]:
        yield "yellow", f"after the boot: {facts['boot']}"
    yield "", _machine(facts)
    if facts["switches"]:
        last = facts["switches"][0]
        end = _ENDS.get(last["code"], "failed")
        when = terminal_lines.moment_with_age(last["at"], facts["at"])
        yield "", f"last switch {when}: {last['person']} to {last['model']}, {end}"
    if facts["diff"]:
        yield "", _drift(facts)


def _hot(facts: Facts) -> Iterator[Line]:
    model = facts["models"].get(facts["hot"])
    if model is None:
        yield "", "no model hot"
        return
    texts = [
        f"{model['name']} hot since {terminal_lines.moment_with_age(model['since'], facts['at'])}"
    ]
    engine = facts["engine"] or {}
    if engine.get("tok_s") is not None:
        texts.append(f"{engine['tok_s']:.1f} tok/s")
    if engine:
        texts.append(f"{engine['requests']} request{'' if engine['requests'] == 1 else 's'}")
    yield "bold green", ", ".join(texts)
    if model["recipe"]:
        yield "", model["recipe"]


def _machine(facts: Facts) -> str:
    memory, disk, gpu = facts["memory_gib"], facts["disk"], facts["gpu"] or {}
    texts = [f"memory {memory['available']:.1f} of {memory['total']:.1f} GiB available"]
    if disk:
        texts.append(f"disk {disk['free_gib']:.0f} of {disk['total_gib']:.0f} GiB free")
    temperatures = [
        f"{gpu[key]:.0f} {unit}"
        for key, unit in (("temperature_c", "°C"), ("clock_mhz", "MHz"), ("power_w", "W"))
        if gpu.get(key) is not None
    ]
    if temperatures:
        texts.append(f"GPU {' '.join(temperatures)}")
    holders = gpu.get("held_down_by")
    return ", ".join(texts) + (f", held down by {', '.join(holders)}" if holders else "")


def _drift(facts: Facts) -> str:
    last_diff = facts["diff"]
    counter = Counter(item["severity"] for item in last_diff["differences"])
    more = {"more": last_diff["more"], "untold": len(last_diff["unknown"])}
    # Nobody knows which of two differing Sparks is the wrong one.
    more["unlike another Spark"] = counter.pop("differs", 0)
    texts = [f"{number} {word}" for word, number in (*counter.items(), *more.items()) if number]
    age = event_lines.duration(max(0.0, facts["at"] - last_diff["at"]))
    return f"drift {age} ago: {', '.join(texts) or 'none'}"
