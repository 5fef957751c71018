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
from lockstep.bench.sample import Sample
from lockstep.core.errors import LockstepError
from lockstep.onhost.core import atomic

SCHEMA = 2
Verdict = Literal["measured", "suspect", "refused"]


class ResultError(LockstepError):
    """A result file cannot be read or written."""


@dataclass(frozen=True)
class SuiteResult:
    """One suite.

    Attributes:
        verdict: "measured": `summary` is the score. "suspect": the ruler is broken, no score.
            "refused": the engine says that it cannot do this; no score either.
        summary: Figures; {} without a score.
        refused: The engine's words.
        checks: What the ruler found about itself.
        samples: Every request.
        notes: Sentences for the reader.
    """

    name: str
    verdict: Verdict
    summary: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    checks: tuple[Check, ...] = ()
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What was measured. None: not known, for example without a host.

    Attributes:
        model: Name in the engine's API.
        version: As the engine reports it.
        image: By digest.
        revision: Commit of the weights.
        generation: What the engine was started with (LOCKSTEP_GENERATION).
        lock: SHA-256 of the lock.
        max_clock_mhz: Cap of the GPU's clock that the inventory asks for.
        flags: The recipe's command line.
    """

    url: str
    model: str
    host: str | None = None
    inventory: str | None = None
    target: str | None = None
    recipe: str | None = None
    engine: str | None = None
    version: str | None = None
    image: str | None = None
    revision: str | None = None
    generation: str | None = None
    lock: str | None = None
    max_clock_mhz: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """One run; its times in UTC (ISO 8601), and the versions of Lockstep and of this format."""

    subject: Subject
    began: str
    ended: str
    lockstep: str
    suites: tuple[SuiteResult, ...]
    schema: int = SCHEMA

    @property
    def suspect(self) -> bool:
        """Whether any suite has no score because of its ruler."""
        return any(suite.verdict == "suspect" for suite in self.suites)

    @property
    def sense(self) -> str:
        """Finding of suite `sense`: "sound", "nonsense", "untold"; "" where it did not run."""
        found = self.suite("sense")
        return "" if found is None else found.summary.get("sense", "untold")

    def suite(self, name: str) -> SuiteResult | None:
        """The suite of that name, None where it did not run."""
        return next((suite for suite in self.suites if suite.name == name), None)


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Samples of one figure with their mean and ends: never one number; None without a value."""
    if not values:
        return None
    samples = [round(value, 6) for value in values]
    mean = round(statistics.fmean(values), 6)
    return {"mean": mean, "low": min(samples), "high": max(samples), "samples": samples}


def save(path: Path, result: Result) -> None:
    """Write the file whole, or leave what is there. ResultError where that fails."""
    with ResultError.instead("the result cannot be written", path):
        atomic.write(path, json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Result:
    """Read a file that `save` wrote.

    Raises:
        ResultError: it is no such file, or of another version of the format.
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
            remedy=remedy,
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


def _sample(data: dict[str, Any]) -> Sample:
    sample = Sample(**{**data, "tool_calls": tuple(data["tool_calls"])})
    if not math.isfinite(sample.seconds):
        raise KeyError("sample")
    return sample
