"""The runner of the long proofs: their options, a lab, the runs, their record, and the outcome.

A module of a proof has a `Proof`: what it needs and what it does, as data. Each run adds a line of
JSON to the file of --record; a call with the same seed and file makes the runs that are missing.
The exit code is 1 when a rule was broken.
"""

import argparse
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import run_record
from stack import Host, Stack, lend_lab


@dataclass
class Run:
    """A run as it stands in the record; `violations` are sentences."""

    number: int
    host: str = ""
    violations: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def key(self) -> object:
        """The value by which a later call knows the run again."""
        return self.number


R = TypeVar("R", bound=Run)


class Trial(Generic[R]):
    """One call of a proof, or of a part of it: its runs, those of the record among them.

    Args:
        stack: The lab, deployed; None for a proof without one.
        kind: The class of its runs; None: `record` is the proof's own matter.
        record: File with a line for each run; None: nothing is kept.
        options: Options of the proof by name; `seed` and `limit`, in seconds, are any proof's.
    """

    def __init__(
        self, stack: Stack | None, kind: type[R] | None, record: Path | None = None, **options: Any
    ) -> None:
        self._stack, self.record = stack, record
        self.options = argparse.Namespace(**{"seed": 1, "limit": None, **options})
        recorded_runs = run_record.read(record, kind) if kind else []
        self.runs: list[R] = list({run.key: run for run in recorded_runs}.values())
        self._finished_keys = {run.key for run in self.runs}
        #: Violations that belong to no run.
        self.violations: list[str] = []
        #: Lines for the report besides the figures of the runs.
        self.notes: list[str] = []
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._end = self._began + (self.options.limit or float("inf"))

    @property
    def stack(self) -> Stack:
        """The lab of the proof."""
        assert self._stack, "this proof has no lab"
        return self._stack

    def chance(self, *words: object) -> random.Random:
        """A source of random values: the same for the same seed and words."""
        seed = self.options.seed
        return random.Random(" ".join(map(str, (seed, *words))) if words else seed)

    def is_over(self) -> bool:
        """Tell whether no further run is to begin."""
        return time.monotonic() > self._end

    def remaining(self, planned_runs: Iterable[R], again: bool = False) -> Iterator[R]:
        """The planned runs that are not in the record, or all `again`, until the time is over."""
        for run in planned_runs:
            if self.is_over():
                return
            if again or run.key not in self._finished_keys:
                yield run

    def make(self, run: R, act: Callable[[R], object]) -> R:
        """Make a run, keep it and print it.

        An assertion that fails is a violation, and no further run begins: nobody knows the lab's
        state then.
        An `act` that returns False has found nothing to do: the run is not kept.
        """
        began = time.monotonic()
        try:
            is_kept = act(run) is not False
        except (AssertionError, subprocess.SubprocessError) as error:
            is_kept = True
            run.violations.append(f"{type(error).__name__}: {error}"[:1500])
            self._end = 0.0
        run.took_s = round(time.monotonic() - began, 1)
        if is_kept:
            with self._lock:
                self.runs = [earlier for earlier in self.runs if earlier.key != run.key] + [run]
                run_record.add(self.record, run)
                words = {
                    name: value for name, value in asdict(run).items() if value not in ("", [])
                }
                print(json.dumps(words), flush=True)
        return run

    def on_hosts(self, act: Callable[[Host], object]) -> None:
        """Act on all hosts at once; an error or an interrupt lets no further run begin."""
        with ThreadPoolExecutor(len(self.stack.hosts)) as pool:
            try:
                for job in [pool.submit(act, host) for host in self.stack.hosts]:
                    job.result()
            except BaseException:
                self._end = 0.0
                raise

    def broken_rules(self) -> list[str]:
        """The rules that were broken, a sentence each."""
        sentences = [
            " ".join(filter(None, (str(run.key), run.host))) + f": {text}"
            for run in self.runs
            for text in run.violations
        ]
        return self.violations + sentences

    def report(self, figures: Iterable[str] = ()) -> str:
        """The figures and the broken rules as text."""
        violations, took_s = self.broken_rules(), time.monotonic() - self._began
        lines = [f"{len(self.runs)} runs, seed {self.options.seed}, {took_s:.0f} s"]
        lines += [*figures, *self.notes, f"violations {len(violations)}"]
        return "\n".join(lines + [f"  {text}" for text in violations])


def counts(name: str, values: Iterable[object]) -> str:
    """A line with the number of times that each value stands there."""
    counter = Counter(map(str, values))
    parts = ", ".join(f"{count} {value}" for value, count in sorted(counter.items()))
    return f"{name}: {sum(counter.values())}; {parts}"


@dataclass(frozen=True)
class Proof(Generic[R]):
    """A long proof.

    Attributes:
        text: What it proves: its module's docstring.
        lab: Name of the lab that is made for it; "" for a proof without one.
        kind: Class of its runs; None: it records them itself.
        prove: Makes the remaining runs of a trial.
        figures: Lines of the report.
        options: Options of its own: name → the default, or the words of `add_argument`.
        inventory: Gives the inventory of the first deploy; None: `prove` deploys.
    """

    text: str | None
    lab: str
    kind: type[R] | None
    prove: Callable[[Trial[R]], object]
    figures: Callable[[Trial[R]], Iterable[str]] = lambda trial: ()
    options: Mapping[str, Any] = field(default_factory=dict)
    inventory: Callable[[Stack], Path] | None = None

    def parser(self) -> argparse.ArgumentParser:
        """The command line."""
        parser = argparse.ArgumentParser(
            description=self.text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--seed", type=int, default=int(time.time()), help="or the time")
        parser.add_argument("--record", type=Path, help="file with a line per run, to go on with")
        parser.add_argument("--limit", type=float, help="seconds after which no run begins")
        if self.lab:
            parser.add_argument("--lab", help="a lab that is up and deployed for this; it stays")
        for name, value in self.options.items():
            words = value if isinstance(value, dict) else {"type": type(value), "default": value}
            parser.add_argument(f"--{name}", **words)
        return parser

    def main(self, argv: list[str] | None = None) -> int:
        """Prove, print the report, and return the exit code."""
        options = vars(self.parser().parse_args(argv))
        lent_lab = options.pop("lab", None)
        with lend_lab(lent_lab, self.lab) if self.lab else nullcontext() as stack:
            if stack and self.inventory and not lent_lab:
                stack.good_deploy(inventory=self.inventory(stack))
            trial = Trial(stack, self.kind, **options)
            try:
                self.prove(trial)
            finally:
                print(trial.report(self.figures(trial)), flush=True)
        return 1 if trial.broken_rules() else 0
