"""End an engine before the host runs out of memory, and have what may take its place started.

usage: memory-floor

Runs as root in lockstep-memory.service, from boot on. Looks at MemAvailable 4 times a second, and
up to 20 times near a floor. Where it is below the floor of a target that is loading or hot,
the engine is killed and its unit stopped, so that systemd does not start it again. The kernel
charges no process for what it holds on the GPU: what ends is found by its unit and not by its size.

earlyoom cannot do this: it picks one process of the whole host, by size, and 1.8 compares -M with a
share of what is available and anonymous (6 GiB of a Spark are 50 % then, and -M 8 GiB 6.6 %).

exit codes: 2 wrong use; it ends by a signal only
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from lockstep.onhost.core import (
    clock,
    config,
    errors,
    layout,
    meminfo,
    output,
    program,
    runner,
    switch_lock,
)
from lockstep.onhost.docker import container_group, docker_api
from lockstep.onhost.records import ended
from lockstep.onhost.switching import switch_job
from lockstep.onhost.systemd import transient, units

# As fast as memory may fill, GiB/s, for the rest between two looks: earlyoom saw 6 of programs.
_FASTEST = 10.0
_SHORTEST_S, _LONGEST_S = 0.05, 0.25
# More than TimeoutStopSec of any unit here.
_STOP_LIMIT_S = 300.0
LOADING, SERVING = "loading", "serving"


@dataclass
class Floor:
    """The watch over one host; `fall_back` starts the job that starts another model."""

    paths: layout.Paths
    fall_back: Callable[[str, layout.Paths], None]
    docker: docker_api.Docker = field(init=False)

    def __post_init__(self) -> None:
        self.docker = docker_api.Docker(self.paths.docker_socket, timeout=5)
        self._host: config.Host | None = None
        self._written = 0

    def step(self) -> float:
        """Look once, and act; the seconds until the next look."""
        targets = self._targets()
        highest = max((max(floors(target).values()) for target in targets), default=0.0)
        room = self._available() - highest
        if room >= 0:
            return min(max(room / _FASTEST, _SHORTEST_S), _LONGEST_S)
        state = units.show(target.unit for target in targets)
        for target in targets:
            self._judge(target, state[target.unit])
        return _SHORTEST_S if any(unit.up for unit in state.values()) else _LONGEST_S

    def _targets(self) -> list[config.Target]:
        """As the deploy bound them last."""
        written = self.paths.targets.stat().st_mtime_ns
        if self._host is None or written != self._written:
            self._host, self._written = config.load_host(self.paths.targets), written
        return list(self._host.targets.values())

    def _available(self) -> float:
        return meminfo.memory(self.paths.proc).available

    def _judge(self, target: config.Target, unit: units.Unit) -> None:
        phase = _phase(unit)
        if phase is None:
            return
        floor, available = floors(target)[phase], self._available()
        if available < floor:
            end = ended.Ended(target.name, unit.name, phase, floor, available)
            self._end(end, target, unit.main_pid)

    def _end(self, end: ended.Ended, target: config.Target, main_pid: int) -> None:
        switching = switch_lock.holder(self.paths.switch_lock)
        try:
            # In memory, and before the end: who waits for the start asks why it failed.
            ended.note(self.paths, end)
        except OSError as error:
            tell(f"not noted in {self.paths.ended}: {errors.why(error)}")
        self._kill(target, main_pid)
        tell(f"{target.name}: {end.reason}")
        # Waits until it is gone, with a container that Docker did not end.
        _systemctl("stop", target.unit)
        if target.cluster is not None:
            tell(f"{target.name}: left to the cluster's agents, which leave it down")
        elif switching is not None:
            tell(f"{target.name}: what follows is left to who was switching: {switching}")
        else:
            try:
                self.fall_back(target.name, self.paths)
            except (errors.Problem, transient.Busy) as problem:
                tell(f"{target.name}: nothing started in its place: {problem}")

    def _kill(self, target: config.Target, main_pid: int) -> None:
        """Kill everything of the engine at once: there is no time for an orderly end.

        The engine first: systemd and Docker answer late on a host that is busy or short of memory.
        """
        if target.container is None:
            # systemd starts it as the leader of a group, and an engine's other processes are in it.
            _sigkill(os.killpg, main_pid)
        else:
            inside = container_group.processes(target.container, self.paths)
            # All of a container end with its first process. Docker may answer late or never on such
            # a host: it is asked only for one that an earlier deploy started.
            for pid in inside or [self._first_pid(target.container)]:
                _sigkill(os.kill, pid)
        # Before RestartSec= is over.
        _systemctl("stop", "--no-block", target.unit)
        _systemctl("kill", "--signal=KILL", target.unit)

    def _first_pid(self, container: str) -> int:
        """Of a running container by Docker's word; 0 where none runs."""
        try:
            found = self.docker.container(container)
        except (docker_api.Unreachable, docker_api.DockerError) as error:
            tell(f"container {container} not killed: {error}")
            return 0
        return int(found["State"]["Pid"]) if found else 0


def _phase(unit: units.Unit) -> str | None:
    """Whether its engine runs, and how far it is; the gate before it waits for memory itself."""
    if not unit.main_pid:
        return None
    return {"loading": LOADING, "hot": SERVING}.get(unit.state)


def floors(target: config.Target) -> dict[str, float]:
    """Phase → least MemAvailable, GiB."""
    return {LOADING: target.floor_loading_gib, SERVING: target.floor_serving_gib}


def _sigkill(kill: Callable[[int, int], None], pid: int) -> None:
    """Nothing where it is gone, and for 0, which would be this program itself.

    What the kernel refuses is said, for systemd is asked next.
    """
    try:
        if pid > 0:
            kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except OSError as error:
        tell(f"process {pid} not killed: {errors.why(error)}")


def _systemctl(*words: str) -> None:
    """What systemd refuses is said; nothing else can be done about it here."""
    verb, *options, unit = words
    try:
        done = runner.run(["systemctl", verb, *options, "--", unit], timeout=_STOP_LIMIT_S)
    except errors.Problem as problem:
        tell(str(problem))
        return
    if done.returncode != 0:
        tell(f"systemctl {verb} {unit} failed: {done.stderr.strip()}")


def start_job(name: str, paths: layout.Paths) -> None:
    """Start the job that starts what may take the place of a target."""
    transient.start(switch_job.fall_back(name, paths), paths, say=lambda _: None, wait=False)


def tell(line: str) -> None:
    """One line for the journal."""
    output.say(f"lockstep memory: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    program.parser(__doc__).parse_args(argv)
    floor = Floor(paths or layout.Paths(), start_job)
    told = ""
    while True:
        try:
            rest, told = floor.step(), ""
        except (OSError, errors.Problem) as problem:
            # Nothing that ails one look may end the watch.
            if str(problem) != told:
                told = str(problem)
                tell(told)
            rest = _LONGEST_S
        clock.sleep(rest)
