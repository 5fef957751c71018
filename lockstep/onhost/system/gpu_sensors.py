"""The present state of the GPU from nvidia-smi: power, clock, heat, and causes of a slow-down.

Many fields of a GB10 are "[N/A]" or "Not Supported", memory among them. The driver reports no cap
set on the clock (seen on 580.178.04): only a clock above it shows that it is lost.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.onhost.core import errors, runner

CAP_UNIT = "lockstep-gpu-cap.service"
# A cap of 2200 MHz held the clock at 2184 to 2190 (docs/gpu.md); steps of a clock are 7 to 15 MHz.
CAP_MARGIN_MHZ = 30
# Bits of `clocks_event_reasons.active` (nvml.h). "Idle" and a set clock slow nothing down.
POWER_CAP = 0x04
HEAT = {
    0x08: "hardware slow-down",
    0x20: "thermal slow-down by the driver",
    0x40: "thermal slow-down by the hardware",
    0x80: "power brake",
}
_FIELDS = {
    "power.draw": "power_w",
    "clocks.sm": "clock_mhz",
    "temperature.gpu": "temperature_c",
    "utilization.gpu": "utilization",
    "clocks_event_reasons.active": "reasons",
}
_UNKNOWN = re.compile(r'Field "([^"]+)" is not a valid field')
_SAMPLE_MS = 500
# Seconds after which a reading is too old to use, and after which an ended program is restarted.
_OLD_S, _AGAIN_S = 3.0, 10.0


@dataclass(frozen=True)
class GpuReading:
    """One reading; None for a value that this driver does not report.

    Attributes:
        power_w: Watts of the GPU alone, a mean of the last second.
        clock_mhz: Its clock in MHz.
        temperature_c: Degrees Celsius.
        utilization: Per cent of the time in which some kernel ran, also one that only waits.
        reasons: Bits of the causes that hold the clock down.
    """

    power_w: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    utilization: float | None = None
    reasons: int | None = None

    @property
    def heat_causes(self) -> list[str]:
        """Causes of a slow-down by heat or by the power supply, in words."""
        return [words for bit, words in HEAT.items() if (self.reasons or 0) & bit]

    def is_above_cap(self, cap_mhz: int | None) -> bool:
        """Tell whether its clock shows that a cap is not in force; False if that is unknown."""
        return bool(cap_mhz and self.clock_mhz and self.clock_mhz > cap_mhz + CAP_MARGIN_MHZ)


def read_gpu() -> GpuReading:
    """Read the GPU once. Fields unknown to this driver, or all without a driver, are None."""
    return _known_fields_and_reading()[1]


def _known_fields_and_reading() -> tuple[list[str], GpuReading]:
    """Return the fields that this driver knows, none without one, and a first reading."""
    fields = list(_FIELDS)
    while fields:
        try:
            result = runner.run(["nvidia-smi", *_query_arguments(fields)], timeout=20)
        except errors.Problem:
            break
        unknown = _UNKNOWN.search(result.stdout + result.stderr)
        if unknown is None or unknown[1] not in fields:
            return (
                (fields, _reading_of_line(fields, result.stdout))
                if result.returncode == 0
                else ([], GpuReading())
            )
        fields.remove(unknown[1])
    return [], GpuReading()


def _query_arguments(fields: Sequence[str]) -> tuple[str, str]:
    return f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"


def _start_repeating(fields: Sequence[str], period_ms: int) -> subprocess.Popen[str]:
    """Print a line of these fields each period, until ended; raise OSError without a driver."""
    return subprocess.Popen(
        ("nvidia-smi", *_query_arguments(fields), f"--loop-ms={period_ms}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


class GpuWatch:
    """A reading each second, by one lasting nvidia-smi: starting it costs more than a reading."""

    def __init__(self) -> None:
        self._newest: tuple[float, GpuReading] | None = None
        threading.Thread(target=self._run_watch_thread, daemon=True).start()

    def newest_reading(self) -> GpuReading:
        """Return the newest reading; an empty one if the driver hangs or is missing."""
        newest = self._newest
        fresh = newest is not None and time.monotonic() - newest[0] < _OLD_S
        return newest[1] if newest is not None and fresh else GpuReading()

    def _run_watch_thread(self) -> None:
        while True:
            fields, first = _known_fields_and_reading()
            if fields:
                self._newest = time.monotonic(), first
                self._read_until_exit(fields)
            time.sleep(_AGAIN_S)

    def _read_until_exit(self, fields: Sequence[str]) -> None:
        with _start_repeating(fields, 1000) as asking:
            for line in asking.stdout or ():
                self._newest = time.monotonic(), _reading_of_line(fields, line)


def _reading_of_line(fields: Sequence[str], line: str) -> GpuReading:
    numbers = [_number(word) for word in line.partition("\n")[0].split(",")]
    values = dict(zip((_FIELDS[name] for name in fields), numbers, strict=False))
    reasons = values.pop("reasons", None)
    return GpuReading(**values, reasons=None if reasons is None else int(reasons))


def _number(word: str) -> float | None:
    try:
        return int(word, 16) if word.strip().startswith("0x") else float(word)
    except ValueError:
        return None


@dataclass
class SampleBand:
    """Samples over a period: power in watts and clock in MHz, each as it came."""

    power_w: list[float]
    clock_mhz: list[float]

    def as_json(self) -> dict[str, dict[str, float]]:
        """Return "power_w" and "clock_mhz", each {"median", "low", "high"}, if it had a sample."""
        import statistics  # Programs on a host start without it.

        return {
            name: {"median": statistics.median(of), "low": min(of), "high": max(of)}
            for name, of in (("power_w", self.power_w), ("clock_mhz", self.clock_mhz))
            if of
        }


@contextlib.contextmanager
def sample_power_and_clock() -> Iterator[SampleBand]:
    """Sample power and clock each half second while the block runs; none without a driver."""
    band = SampleBand([], [])
    try:
        asking = _start_repeating(("power.draw", "clocks.sm"), _SAMPLE_MS)
    except OSError:
        yield band
        return
    try:
        yield band
    finally:
        asking.terminate()
        # The pipe holds the samples of half an hour. The last line may be cut off.
        for line in asking.communicate()[0].rpartition("\n")[0].splitlines():
            power, _, clock = line.partition(",")
            for word, of in ((power, band.power_w), (clock, band.clock_mhz)):
                number = _number(word)
                if number is not None:
                    of.append(number)
