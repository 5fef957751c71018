"""The facts of several Sparks as they change: one connection to each, held as long as needed."""

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

#: Seconds after which a Spark that says nothing is called silent.
SILENT_S = 10.0
# A Spark that is away is asked again.
_AGAIN_S = 5.0


@dataclass(frozen=True)
class SparkState:
    """What is known of one Spark.

    Attributes:
        facts: The newest, as `onhost.operator.facts.Facts.now` has them; None before the first.
        fault: Why there are none by now; "" where they are new.
        looks: How many have come by this connection. A rate needs two.
    """

    facts: Mapping[str, Any] | None = None
    fault: str = ""
    looks: int = 0

    @property
    def is_deployed_to(self) -> bool:
        """Whether Lockstep is there, as far as can be told."""
        return self.fault != NOT_DEPLOYED


class _Spark:
    """One host, followed by a thread of its own."""

    def __init__(self, host: Host, told: threading.Condition) -> None:
        self._program = switch_path(host.plan.settings)
        self._argv = host.login.command([self._program, "status", "--follow"])
        self._login = host.login
        self._told = told
        self._process: subprocess.Popen[str] | None = None
        self._over = threading.Event()
        self._heard = time.monotonic()
        self._state = SparkState()
        threading.Thread(target=self._follow, daemon=True).start()

    def state(self) -> SparkState:
        """What is known now."""
        state, quiet = self._state, time.monotonic() - self._heard
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
            said = ""
            try:
                said = self._listen()
            except OSError as fault:
                said = not_run(self._login, self._argv[0], fault)
            self._change(SparkState(self._state.facts, said))
            self._over.wait(_AGAIN_S)

    def _listen(self) -> str:
        """Hear one connection to its end; why it ended."""
        said = ""
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
                    said = line.strip() or said
                    continue
                self._heard = time.monotonic()
                self._change(SparkState(facts, looks=self._state.looks + 1))
        if self._login.words and process.returncode == NO_CONNECTION:
            return f"no connection: {said}"
        if is_absent(self._program, process.returncode, said):
            return NOT_DEPLOYED
        return said or f"its status ended with {process.returncode}"

    def _change(self, state: SparkState) -> None:
        with self._told:
            self._state = state
            self._told.notify_all()


class Watching:
    """Several Sparks; `all` says what is known of each now."""

    def __init__(self, sparks: Mapping[str, _Spark], told: threading.Condition) -> None:
        self._sparks = sparks
        self._told = told

    def all(self) -> dict[str, SparkState]:
        """What is known now, in the order of the hosts."""
        return {name: spark.state() for name, spark in self._sparks.items()}

    def until(
        self, enough: Callable[[dict[str, SparkState]], bool], limit_s: float
    ) -> dict[str, SparkState]:
        """What is known as soon as it is enough, or when the time is over."""
        until = time.monotonic() + limit_s
        with self._told:
            while not enough(self.all()) and (left := until - time.monotonic()) > 0:
                self._told.wait(left)
        return self.all()


@contextlib.contextmanager
def watching(hosts: Sequence[Host]) -> Iterator[Watching]:
    """Connections to all of them, for the block.

    Raises:
        InventoryError: a host that is reached neither by ssh nor as `@local`.
    """
    told = threading.Condition()
    sparks = {host.name: _Spark(host, told) for host in hosts}
    try:
        yield Watching(sparks, told)
    finally:
        for spark in sparks.values():
            spark.end()
