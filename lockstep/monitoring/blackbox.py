"""The last minutes of a Spark from its records: figures, changes, messages, gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from lockstep.monitoring.kernel_log import parse

#: Time (Unix, s) → value.
Values = dict[float, float]
#: Name of a series → labels and values, for each set of labels.
Series = dict[str, list[tuple[Mapping[str, str], Values]]]
_GIB = 1024**3
# A figure whose last value is older than this, when the host fell silent, had stopped before.
_STOPPED_S = 5.0


@dataclass(frozen=True)
class Gauge:
    """A column: its key for programs, its heading, its unit, digits after the point."""

    key: str
    heading: str
    unit: str
    digits: int
    of: Callable[[Series], Values]


def _most(name: str, factor: float = 1.0) -> Callable[[Series], Values]:
    """Return a function for the highest value over all sets of labels."""

    def of(series: Series) -> Values:
        largest: Values = {}
        for _, values in series.get(name, ()):
            for at, value in values.items():
                largest[at] = max(value * factor, largest.get(at, -inf))
        return largest

    return of


def _rate(*names: str, factor: float) -> Callable[[Series], Values]:
    """Return a function for the gain of counters per second, over all sets of labels."""

    def of(series: Series) -> Values:
        total: Values = {}
        for values in (totals for name in names for _, totals in series.get(name, ())):
            for at, value in values.items():
                total[at] = total.get(at, 0.0) + value
        times = sorted(total)
        steps = pairwise(times)
        # A counter that begins anew gives no gain.
        gains = {now: (total[now] - total[earlier]) / (now - earlier) for earlier, now in steps}
        return {at: value * factor for at, value in gains.items() if value >= 0}

    return of


#: The figures that are shown for each moment.
FIGURES = (
    Gauge("available_gib", "memory", "GiB", 1, _most("lockstep_memory_available_bytes", 1 / _GIB)),
    Gauge(
        "memory_stalled_percent",
        "waits for memory",
        "%",
        0,
        _rate("node_pressure_memory_stalled_seconds_total", factor=100.0),
    ),
    Gauge(
        "io_stalled_percent",
        "waits for disk",
        "%",
        0,
        _rate("node_pressure_io_stalled_seconds_total", factor=100.0),
    ),
    Gauge("load", "load", "", 1, _most("node_load1")),
    Gauge(
        "disk_mb_s",
        "disk",
        "MB/s",
        0,
        _rate("node_disk_read_bytes_total", "node_disk_written_bytes_total", factor=1e-6),
    ),
    Gauge("board_celsius", "board", "°C", 0, _most("node_thermal_zone_temp")),
    Gauge("gpu_celsius", "GPU", "°C", 0, _most("lockstep_gpu_temperature_celsius")),
    Gauge("gpu_mhz", "GPU", "MHz", 0, _most("lockstep_gpu_clock_hertz", 1e-6)),
    Gauge("gpu_watts", "GPU", "W", 0, _most("lockstep_gpu_power_watts")),
    Gauge("gpu_busy_percent", "GPU", "%", 0, _most("lockstep_gpu_utilization_ratio", 100.0)),
)


@dataclass(frozen=True)
class Event:
    """A thing that happened: its time (Unix, s), its kind, its text."""

    at: float
    kind: str
    words: str


@dataclass(frozen=True)
class Story:
    """The last minutes of a host.

    Attributes:
        host: Its name.
        recorder: Host that kept these records; None: the host itself.
        minutes: Number of minutes asked for.
        now: Unix time of the question, s.
        end: Time at which the host was last seen.
        alive: Whether that time is now.
        boot_time: Begin of its present boot, where that is known.
        figures: Key of `FIGURES` → time → value; only those that are known.
        state: Time → model that was hot or loading.
        events: Events in the order of time.
        unknown: Sentences on what nobody can know.
        last_words: File that the kernel kept → its last lines.
    """

    host: str
    recorder: str | None
    minutes: int
    now: float
    end: float
    alive: bool
    boot_time: float | None
    figures: Mapping[str, Values]
    state: Mapping[float, str]
    events: Sequence[Event]
    unknown: Sequence[str] = ()
    last_words: Mapping[str, str] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """All moments of which anything is known."""
        return sorted({at for values in self.figures.values() for at in values})

    @property
    def known_figures(self) -> list[Gauge]:
        """The figures that are known."""
        return [figure for figure in FIGURES if figure.key in self.figures]


def story(host: str, recorder: str | None, minutes: int, answer: Mapping[str, Any]) -> Story:
    """Return the answer of the reader `blackbox` as the last minutes of a host; see `Story`."""
    series: Series = {}
    for entry in answer["series"]:
        values = {float(at): float(value) for at, value in entry["values"]}
        series.setdefault(entry["name"], []).append((entry["labels"], values))
    figures = {figure.key: figure.of(series) for figure in FIGURES}
    state = _state(series)
    events = [
        *_changes("state", state),
        *_changes("gpu", _held_down(series)),
        *_events_of_log(answer["said"], kernel=recorder is not None),
    ]
    return Story(
        host=host,
        recorder=recorder,
        minutes=minutes,
        now=answer["now"],
        end=answer["end"],
        alive=answer["alive"],
        boot_time=answer["booted"],
        figures={key: values for key, values in figures.items() if values},
        state=state,
        events=sorted(events, key=lambda event: event.at),
        unknown=_unknown(host, recorder, answer, series),
        last_words=answer["last_words"],
    )


def _state(series: Series) -> dict[float, str]:
    """Return time → what the model was doing, for times with a record."""
    states: dict[float, str] = {
        at: "nothing hot" for at in _most("lockstep_deploy_running")(series)
    }
    for name, word in (("lockstep_loading_model", "loading"), ("lockstep_hot_model", "hot")):
        for labels, values in series.get(name, ()):
            states |= {at: f"{labels['model']} {word}" for at, value in values.items() if value}
    for name, word in (
        ("lockstep_switch_running", "switching"),
        ("lockstep_deploy_running", "deploy"),
    ):
        for at, value in _most(name)(series).items():
            if value and at in states:
                states[at] += f", {word}"
    return states


def _held_down(series: Series) -> dict[float, str]:
    reasons: dict[float, list[str]] = {}
    for labels, values in series.get("lockstep_gpu_throttled", ()):
        for at, value in values.items():
            reasons.setdefault(at, []).extend([labels["reason"]] if value else [])
    return {
        at: f"held down: {', '.join(sorted(words))}" if words else "not held down"
        for at, words in reasons.items()
    }


def _changes(kind: str, states: Mapping[float, str]) -> Iterable[Event]:
    previous = None
    for at in sorted(states):
        if states[at] != previous and previous is not None:
            yield Event(at, kind, states[at])
        previous = states[at]


def _events_of_log(entries: Iterable[Sequence[Any]], *, kernel: bool) -> Iterable[Event]:
    for at, program, message in entries:
        if not kernel:
            yield Event(at, "journal", f"{program}: {message}")
        elif kernel_message := parse(message):
            yield Event(
                at,
                "kernel",
                f"{kernel_message.level}: {kernel_message.words}"
                if kernel_message.level
                else kernel_message.words,
            )


def _unknown(
    host: str, recorder: str | None, answer: Mapping[str, Any], series: Series
) -> list[str]:
    gaps = []
    write_times = _most("lockstep_metrics_written_timestamp_seconds")(series)
    if write_times and answer["end"] - max(write_times.values()) > _STOPPED_S:
        silent_s = answer["end"] - max(write_times.values())
        gaps.append(
            f"Figures of memory, the GPU and the model had stood still for {silent_s:.0f} s when "
            f"{host} was last seen: its own writer had stopped."
        )
    if recorder is not None:
        return gaps
    boot = answer["boot"]
    if boot and boot["model"]:
        gaps.append(
            f"In the boot before this one {boot['model']} was {boot['phase']} when it was cut off."
        )
    if answer["alive"]:
        return gaps
    gaps.append(
        f"{host} is recorded by no other Spark: what it did not write to its disk in time is lost. "
        "That is its last seconds, and all that the kernel said while it could not write."
    )
    if not series:
        gaps.append(
            "Memory, load, temperature and clock at the end are not known: no Prometheus kept them."
        )
    if not answer["last_words"]:
        gaps.append("The kernel kept no last words (pstore is empty).")
    gaps.append(
        "Two Sparks with `monitoring.enabled` and `fabric_address` keep each other's "
        "(`lockstep help monitoring black-box`)."
    )
    return gaps
