"""The GPU of this moment, as nvidia-smi tells it: power, clock, heat, and what slows it down.

Many fields of a GB10 are "[N/A]" or "Not Supported", memory among them. The driver tells no cap of
the clock that was set (seen on 580.178.04): only a clock above it shows that it is lost.
"""

from __future__ import annotations

import contextlib
import re
import statistics
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
# After this nothing is known of the present; so long after its end it is started again, seconds.
_OLD_S, _AGAIN_S = 3.0, 10.0


@dataclass(frozen=True)
class Reading:
    """One moment. None: this driver does not tell it.

    Attributes:
        power_w: Watts of the GPU alone, a mean of the last second.
        clock_mhz: Its clock.
        temperature_c: Degrees.
        utilization: Per cent of the time in which some kernel ran; one that only waits counts.
        reasons: Bits of what holds the clock down.
    """

    power_w: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    utilization: float | None = None
    reasons: int | None = None

    @property
    def heat(self) -> list[str]:
        """What slows it down by heat or by the power supply, in words."""
        return [words for bit, words in HEAT.items() if (self.reasons or 0) & bit]

    def above(self, cap_mhz: int | None) -> bool:
        """Whether its clock shows that a cap is not in force; False where it cannot be told."""
        return bool(cap_mhz and self.clock_mhz and self.clock_mhz > cap_mhz + CAP_MARGIN_MHZ)


def look() -> Reading:
    """One look. Of a field that this driver does not know, or all without a driver: None."""
    return _asked()[1]


def _asked() -> tuple[list[str], Reading]:
    """The fields that this driver knows, none without one, and one look at them."""
    asked = list(_FIELDS)
    while asked:
        try:
            done = runner.run(["nvidia-smi", *_query(asked)], timeout=20)
        except errors.Problem:
            break
        unknown = _UNKNOWN.search(done.stdout + done.stderr)
        if unknown is None or unknown[1] not in asked:
            return (
                (asked, _reading(asked, done.stdout)) if done.returncode == 0 else ([], Reading())
            )
        asked.remove(unknown[1])
    return [], Reading()


def _query(fields: Sequence[str]) -> tuple[str, str]:
    return f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"


def _repeated(fields: Sequence[str], period_ms: int) -> subprocess.Popen[str]:
    """A line of these fields each period, until it is ended. OSError without a driver."""
    return subprocess.Popen(
        ("nvidia-smi", *_query(fields), f"--loop-ms={period_ms}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


class Watched:
    """A look each second, by one nvidia-smi that stays: starting it costs more than a look."""

    def __init__(self) -> None:
        self._newest: tuple[float, Reading] | None = None
        threading.Thread(target=self._follow, daemon=True).start()

    def now(self) -> Reading:
        """The newest look; nothing where that is old, because a driver hangs, or there is none."""
        newest = self._newest
        fresh = newest is not None and time.monotonic() - newest[0] < _OLD_S
        return newest[1] if newest is not None and fresh else Reading()

    def _follow(self) -> None:
        while True:
            fields, first = _asked()
            if fields:
                self._newest = time.monotonic(), first
                self._read(fields)
            time.sleep(_AGAIN_S)

    def _read(self, fields: Sequence[str]) -> None:
        with _repeated(fields, 1000) as asking:
            for line in asking.stdout or ():
                self._newest = time.monotonic(), _reading(fields, line)


def _reading(asked: Sequence[str], line: str) -> Reading:
    numbers = [_number(word) for word in line.partition("\n")[0].split(",")]
    found = dict(zip((_FIELDS[name] for name in asked), numbers, strict=False))
    reasons = found.pop("reasons", None)
    return Reading(**found, reasons=None if reasons is None else int(reasons))


def _number(word: str) -> float | None:
    try:
        return int(word, 16) if word.strip().startswith("0x") else float(word)
    except ValueError:
        return None


@dataclass
class Band:
    """Samples of a while: power in watts and clock in MHz, each as it came."""

    power_w: list[float]
    clock_mhz: list[float]

    def as_json(self) -> dict[str, dict[str, float]]:
        """ "power_w" and "clock_mhz", each {"median", "low", "high"}; only what had a sample."""
        return {
            name: {"median": statistics.median(of), "low": min(of), "high": max(of)}
            for name, of in (("power_w", self.power_w), ("clock_mhz", self.clock_mhz))
            if of
        }


@contextlib.contextmanager
def sampled() -> Iterator[Band]:
    """Samples of power and clock each half second while the block runs; none without a driver."""
    band = Band([], [])
    try:
        asking = _repeated(("power.draw", "clocks.sm"), _SAMPLE_MS)
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
