"""The facts of several Sparks as they change, over one connection to each."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.fleet.hosts import NOT_DEPLOYED, Host, is_absent, not_run
from lockstep.fleet.login import NO_CONNECTION
from lockstep.units.scripts import switch_path

#: Seconds without a message after which a Spark is called silent.
SILENT_S = 10.0
# Seconds until an absent Spark is asked again.
_AGAIN_S = 5.0


@dataclass(frozen=True)
class SparkState:
    """The known state of one Spark.

    Attributes:
        facts: The newest, as `onhost.operator.facts.Facts.now` has them; None before the first.
        fault: Why there are no new facts; "" where they are new.
        looks: Number of facts that came over this connection. A rate needs two.
    """

    facts: Mapping[str, Any] | None = None
    fault: str = ""
    looks: int = 0

    @property
    def is_deployed_to(self) -> bool:
        """True if Lockstep is deployed there, as far as can be told."""
        return self.fault != NOT_DEPLOYED


class _Spark:
    """A host, followed by a thread of its own."""

    def __init__(self, host: Host, condition: threading.Condition) -> None:
        self._program = switch_path(host.plan.settings)
        self._argv = host.login.command([self._program, "status", "--follow"])
        self._login = host.login
        self._condition = condition
        self._process: subprocess.Popen[str] | None = None
        self._over = threading.Event()
        self._last_heard = time.monotonic()
        self._state = SparkState()
        threading.Thread(target=self._follow, daemon=True).start()

    def state(self) -> SparkState:
        """Return the state that is known now."""
        state, quiet = self._state, time.monotonic() - self._last_heard
        if quiet < SILENT_S or state.fault:
            return state
        return SparkState(state.facts, f"no answer for {quiet:.0f} s", state.looks)

    def end(self) -> None:
        """Close the connection."""
        self._over.set()
        if self._process is not None:
            self._process.terminate()

    def _follow(self) -> None:
        while not self._over.is_set():
            last_fault = ""
            try:
                last_fault = self._listen()
            except OSError as fault:
                last_fault = not_run(self._login, self._argv[0], fault)
            self._change(SparkState(self._state.facts, last_fault))
            self._over.wait(_AGAIN_S)

    def _listen(self) -> str:
        """Read one connection to its end; return why it ended."""
        fault = ""
        with subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            self._process = process
            if self._over.is_set():
                process.terminate()
            assert process.stdout is not None
            for line in process.stdout:
                try:
                    facts = json.loads(line)
                except ValueError:
                    fault = line.strip() or fault
                    continue
                self._last_heard = time.monotonic()
                self._change(SparkState(facts, looks=self._state.looks + 1))
        if self._login.words and process.returncode == NO_CONNECTION:
            return f"no connection: {fault}"
        if is_absent(self._program, process.returncode, fault):
            return NOT_DEPLOYED
        return fault or f"its status ended with {process.returncode}"

    def _change(self, state: SparkState) -> None:
        with self._condition:
            self._state = state
            self._condition.notify_all()


class Watching:
    """Several Sparks; `all` returns the known state of each."""

    def __init__(self, sparks: Mapping[str, _Spark], condition: threading.Condition) -> None:
        self._sparks = sparks
        self._condition = condition

    def all(self) -> dict[str, SparkState]:
        """Return the states that are known now, in the order of the hosts."""
        return {name: spark.state() for name, spark in self._sparks.items()}

    def until(
        self, enough: Callable[[dict[str, SparkState]], bool], limit_s: float
    ) -> dict[str, SparkState]:
        """Return the states as soon as they are enough, or when the time is over."""
        until = time.monotonic() + limit_s
        with self._condition:
            while not enough(self.all()) and (remaining := until - time.monotonic()) > 0:
                self._condition.wait(remaining)
        return self.all()


@contextlib.contextmanager
def watching(hosts: Sequence[Host]) -> Iterator[Watching]:
    """Open a connection to each host for the block.

    Raises:
        InventoryError: a host that is reached neither by ssh nor as `@local`.
    """
    condition = threading.Condition()
    sparks = {host.name: _Spark(host, condition) for host in hosts}
    try:
        yield Watching(sparks, condition)
    finally:
        for spark in sparks.values():
            spark.end()
