"""The result of a run: one JSON file with every sample and every check (docs/measuring.md)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lockstep.bench.ruler import Check
from lockstep.bench.sample import BenchSample
from lockstep.core.errors import LockstepError
from lockstep.onhost.core import atomic_files

#: 2 called the model `target`, its served name `model` and the restart key `generation`.
SCHEMA = 3
Verdict = Literal["measured", "suspect", "refused"]


class ResultError(LockstepError):
    """An error in reading or writing a result file."""


@dataclass(frozen=True)
class SuiteResult:
    """The result of one suite.

    Attributes:
        verdict: "measured": `summary` is the score. "suspect": the ruler is broken, no score.
            "refused": the engine says that it cannot do this; no score either.
        summary: The figures; {} without a score.
        refusal: The engine's words.
        checks: The ruler's judgements of the measurement itself.
        samples: Every request.
        notes: Sentences for the reader.
    """

    name: str
    verdict: Verdict
    summary: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    checks: tuple[Check, ...] = ()
    samples: tuple[BenchSample, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """The subject of a measurement; None means unknown, for example without a host.

    Attributes:
        served_name: The name in the engine's API.
        model: The name in the inventory.
        version: The version that the engine reports.
        image: The image with its digest.
        revision: Commit of the weights.
        restart_key: The restart key with which the engine was started (LOCKSTEP_RESTART_KEY).
        lock: SHA-256 of the lock.
        max_clock_mhz: Cap of the GPU's clock that the inventory asks for.
        flags: The recipe's command line.
    """

    url: str
    served_name: str
    host: str | None = None
    inventory: str | None = None
    model: str | None = None
    recipe: str | None = None
    engine: str | None = None
    version: str | None = None
    image: str | None = None
    revision: str | None = None
    restart_key: str | None = None
    lock: str | None = None
    max_clock_mhz: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """One run, with times in UTC (ISO 8601) and the versions of Lockstep and of this format."""

    subject: Subject
    began: str
    end_time: str
    lockstep: str
    suites: tuple[SuiteResult, ...]
    schema: int = SCHEMA

    @property
    def suspect(self) -> bool:
        """True if any suite has no score because of its ruler."""
        return any(suite.verdict == "suspect" for suite in self.suites)

    @property
    def sense(self) -> str:
        """The verdict of suite `sense`: "sound", "nonsense", "untold"; "" if it did not run."""
        suite = self.suite("sense")
        return "" if suite is None else suite.summary.get("sense", "untold")

    def suite(self, name: str) -> SuiteResult | None:
        """Return the suite of that name, or None if it did not run."""
        return next((suite for suite in self.suites if suite.name == name), None)


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Return the samples of one figure with their mean and ends, or None without a value."""
    if not values:
        return None
    samples = [round(value, 6) for value in values]
    mean = round(statistics.fmean(values), 6)
    return {"mean": mean, "low": min(samples), "high": max(samples), "samples": samples}


def save(path: Path, result: Result) -> None:
    """Write the file atomically.

    Raises:
        ResultError: the file cannot be written.
    """
    with ResultError.instead("the result cannot be written", path):
        atomic_files.write(path, json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Result:
    """Read a file that `save` wrote.

    Raises:
        ResultError: the file is not a result, or is of another version of the format.
    """
    remedy = "Give a file that `lockstep bench` wrote."
    with ResultError.instead("the result cannot be read", path):
        text = path.read_bytes()
    try:
        data = json.loads(text)
    except ValueError as fault:
        raise ResultError("not JSON", where=str(path), found=str(fault), remedy=remedy) from fault
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise ResultError(
            "not a result of this version",
            where=str(path),
            found=f"schema {schema!r}",
            allowed=str(SCHEMA),
            remedy="Measure again." if schema in range(1, SCHEMA) else remedy,
        )
    try:
        return _result(data)
    except (KeyError, TypeError, AttributeError) as fault:
        raise ResultError(
            "not a result of `lockstep bench`", where=str(path), found=repr(fault), remedy=remedy
        ) from fault


def _result(data: dict[str, Any]) -> Result:
    for suite in data["suites"]:
        suite["checks"] = tuple(Check(**check) for check in suite["checks"])
        suite["samples"] = tuple(_sample(sample) for sample in suite["samples"])
        suite["notes"] = tuple(suite["notes"])
    data["suites"] = tuple(SuiteResult(**suite) for suite in data["suites"])
    data["subject"]["flags"] = tuple(data["subject"]["flags"])
    data["subject"] = Subject(**data["subject"])
    return Result(**data)


def _sample(data: dict[str, Any]) -> BenchSample:
    sample = BenchSample(**{**data, "tool_calls": tuple(data["tool_calls"])})
    if not math.isfinite(sample.seconds):
        raise KeyError("sample")
    return sample
