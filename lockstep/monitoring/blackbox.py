"""The last minutes of a Spark, from what was kept of it: figures, changes, messages, gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from lockstep.monitoring.kernel_log import parse

#: Time (Unix, s) → value.
Values = dict[float, float]
#: Name of a series → its labels and values, for each set of labels.
Series = dict[str, list[tuple[Mapping[str, str], Values]]]
_GIB = 1024**3
# Figures of its own that are older than this when the host fell silent had stopped before it.
_STOPPED_S = 5.0


@dataclass(frozen=True)
class Figure:
    """One column: its key for programs, its heading, its unit, digits after the point."""

    key: str
    heading: str
    unit: str
    digits: int
    of: Callable[[Series], Values]


def _most(name: str, factor: float = 1.0) -> Callable[[Series], Values]:
    """The highest of all sets of labels."""

    def of(series: Series) -> Values:
        found: Values = {}
        for _, values in series.get(name, ()):
            for at, value in values.items():
                found[at] = max(value * factor, found.get(at, -inf))
        return found

    return of


def _rate(*names: str, factor: float) -> Callable[[Series], Values]:
    """What counters gain in a second, of all sets of labels together."""

    def of(series: Series) -> Values:
        total: Values = {}
        for values in (each for name in names for _, each in series.get(name, ())):
            for at, value in values.items():
                total[at] = total.get(at, 0.0) + value
        times = sorted(total)
        steps = pairwise(times)
        # A counter that begins anew tells nothing.
        gained = {now: (total[now] - total[before]) / (now - before) for before, now in steps}
        return {at: value * factor for at, value in gained.items() if value >= 0}

    return of


#: What is shown of each moment.
FIGURES = (
    Figure("available_gib", "memory", "GiB", 1, _most("lockstep_memory_available_bytes", 1 / _GIB)),
    Figure(
        "memory_stalled_percent",
        "waits for memory",
        "%",
        0,
        _rate("node_pressure_memory_stalled_seconds_total", factor=100.0),
    ),
    Figure(
        "io_stalled_percent",
        "waits for disk",
        "%",
        0,
        _rate("node_pressure_io_stalled_seconds_total", factor=100.0),
    ),
    Figure("load", "load", "", 1, _most("node_load1")),
    Figure(
        "disk_mb_s",
        "disk",
        "MB/s",
        0,
        _rate("node_disk_read_bytes_total", "node_disk_written_bytes_total", factor=1e-6),
    ),
    Figure("board_celsius", "board", "°C", 0, _most("node_thermal_zone_temp")),
    Figure("gpu_celsius", "GPU", "°C", 0, _most("lockstep_gpu_temperature_celsius")),
    Figure("gpu_mhz", "GPU", "MHz", 0, _most("lockstep_gpu_clock_hertz", 1e-6)),
    Figure("gpu_watts", "GPU", "W", 0, _most("lockstep_gpu_power_watts")),
    Figure("gpu_busy_percent", "GPU", "%", 0, _most("lockstep_gpu_utilization_ratio", 100.0)),
)


@dataclass(frozen=True)
class Event:
    """Something that happened: when (Unix time, s), of what kind, in which words."""

    at: float
    kind: str
    words: str


@dataclass(frozen=True)
class Story:
    """The last minutes of a host.

    Attributes:
        host: Its name.
        recorder: Who kept this; None: itself.
        minutes: How many were asked for.
        now: When that was, Unix time, s.
        end: When it was last seen.
        alive: Whether that is now.
        booted: When its present boot began, where that is known.
        figures: Key of `FIGURES` → time → value; only those that are known.
        state: Time → what was hot or loading.
        events: In the order of time.
        unknown: Sentences on what nobody can know.
        last_words: File that the kernel kept → its last lines.
    """

    host: str
    recorder: str | None
    minutes: int
    now: float
    end: float
    alive: bool
    booted: float | None
    figures: Mapping[str, Values]
    state: Mapping[float, str]
    events: Sequence[Event]
    unknown: Sequence[str] = ()
    last_words: Mapping[str, str] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Every moment of which anything is known."""
        return sorted({at for values in self.figures.values() for at in values})

    @property
    def shown(self) -> list[Figure]:
        """The figures that are known."""
        return [figure for figure in FIGURES if figure.key in self.figures]


def story(host: str, recorder: str | None, minutes: int, answer: Mapping[str, Any]) -> Story:
    """What the reader `blackbox` answered, as the last minutes of a host; see `Story`."""
    series: Series = {}
    for each in answer["series"]:
        values = {float(at): float(value) for at, value in each["values"]}
        series.setdefault(each["name"], []).append((each["labels"], values))
    figures = {figure.key: figure.of(series) for figure in FIGURES}
    state = _state(series)
    events = [
        *_changes("state", state),
        *_changes("gpu", _held_down(series)),
        *_said(answer["said"], kernel=recorder is not None),
    ]
    return Story(
        host=host,
        recorder=recorder,
        minutes=minutes,
        now=answer["now"],
        end=answer["end"],
        alive=answer["alive"],
        booted=answer["booted"],
        figures={key: values for key, values in figures.items() if values},
        state=state,
        events=sorted(events, key=lambda event: event.at),
        unknown=_unknown(host, recorder, answer, series),
        last_words=answer["last_words"],
    )


def _state(series: Series) -> dict[float, str]:
    """Time → what the model was doing; only where the host told."""
    found: dict[float, str] = {at: "nothing hot" for at in _most("lockstep_deploy_running")(series)}
    for name, word in (("lockstep_loading_target", "loading"), ("lockstep_hot_target", "hot")):
        for labels, values in series.get(name, ()):
            found |= {at: f"{labels['target']} {word}" for at, value in values.items() if value}
    for name, word in (
        ("lockstep_switch_running", "switching"),
        ("lockstep_deploy_running", "deploy"),
    ):
        for at, value in _most(name)(series).items():
            if value and at in found:
                found[at] += f", {word}"
    return found


def _held_down(series: Series) -> dict[float, str]:
    reasons: dict[float, list[str]] = {}
    for labels, values in series.get("lockstep_gpu_throttled", ()):
        for at, value in values.items():
            reasons.setdefault(at, []).extend([labels["reason"]] if value else [])
    return {
        at: f"held down: {', '.join(sorted(words))}" if words else "not held down"
        for at, words in reasons.items()
    }


def _changes(kind: str, told: Mapping[float, str]) -> Iterable[Event]:
    before = None
    for at in sorted(told):
        if told[at] != before and before is not None:
            yield Event(at, kind, told[at])
        before = told[at]


def _said(said: Iterable[Sequence[Any]], *, kernel: bool) -> Iterable[Event]:
    for at, program, message in said:
        if not kernel:
            yield Event(at, "journal", f"{program}: {message}")
        elif found := parse(message):
            yield Event(
                at, "kernel", f"{found.level}: {found.words}" if found.level else found.words
            )


def _unknown(
    host: str, recorder: str | None, answer: Mapping[str, Any], series: Series
) -> list[str]:
    found = []
    written = _most("lockstep_metrics_written_timestamp_seconds")(series)
    if written and answer["end"] - max(written.values()) > _STOPPED_S:
        stood = answer["end"] - max(written.values())
        found.append(
            f"Figures of memory, the GPU and the model had stood still for {stood:.0f} s when "
            f"{host} was last seen: its own writer had stopped."
        )
    if recorder is not None:
        return found
    boot = answer["boot"]
    if boot and boot["target"]:
        found.append(
            f"In the boot before this one {boot['target']} was {boot['phase']} when it was cut off."
        )
    if answer["alive"]:
        return found
    found.append(
        f"{host} is recorded by no other Spark: what it did not write to its disk in time is lost. "
        "That is its last seconds, and all that the kernel said while it could not write."
    )
    if not series:
        found.append(
            "Memory, load, temperature and clock at the end are not known: no Prometheus kept them."
        )
    if not answer["last_words"]:
        found.append("The kernel kept no last words (pstore is empty).")
    found.append(
        "Two Sparks with `monitoring.enabled` and `fabric_address` keep each other's "
        "(`lockstep help monitoring black-box`)."
    )
    return found
