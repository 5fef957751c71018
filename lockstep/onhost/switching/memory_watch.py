"""End an engine before the host runs out of memory, and have its replacement started.

usage: memory-minimum

Runs as root in lockstep-memory.service, from boot on. Reads MemAvailable 4 times a second, and up
to 20 times near a minimum. Below the minimum of a model that is loading or hot, the engine is
killed and its unit stopped, so that systemd does not start it again. The kernel charges no process
for its GPU memory, so the engine to end is found by its unit and not by its size.

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
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
    unified_memory,
)
from lockstep.onhost.docker import container_processes, docker_api
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import transient_job, units

# Memory may fill that fast between two looks, GiB/s: earlyoom saw 6 of programs.
_FASTEST = 10.0
_SHORTEST_S, _LONGEST_S = 0.05, 0.25
# More than TimeoutStopSec of any unit here.
_STOP_LIMIT_S = 300.0
LOADING, SERVING = "loading", "serving"


@dataclass
class MemoryWatch:
    """The watch over one host; `fall_back` starts the job that starts another model."""

    paths: layout.Paths
    fall_back: Callable[[str, layout.Paths], None]
    docker: docker_api.Docker = field(init=False)

    def __post_init__(self) -> None:
        self.docker = docker_api.Docker(self.paths.docker_socket, timeout=5)
        self._host: config.HostConfig | None = None
        self._models_mtime = 0

    def check_memory(self) -> float:
        """Look once and act; return the seconds until the next look."""
        models = self._bound_models()
        highest = max((max(minimums(model).values()) for model in models), default=0.0)
        room = self._available_gib() - highest
        if room >= 0:
            return min(max(room / _FASTEST, _SHORTEST_S), _LONGEST_S)
        state = units.units_by_name(model.unit for model in models)
        for model in models:
            self._end_if_below_minimum(model, state[model.unit])
        return _SHORTEST_S if any(unit.up for unit in state.values()) else _LONGEST_S

    def _bound_models(self) -> list[config.Model]:
        """Return the models as the last deploy bound them."""
        models_mtime = self.paths.models.stat().st_mtime_ns
        if self._host is None or models_mtime != self._models_mtime:
            self._host, self._models_mtime = config.load_host(self.paths.models), models_mtime
        return list(self._host.models.values())

    def _available_gib(self) -> float:
        return unified_memory.memory(self.paths.proc).available

    def _end_if_below_minimum(self, model: config.Model, unit: units.Unit) -> None:
        phase = _phase(unit)
        if phase is None:
            return
        minimum, available = minimums(model)[phase], self._available_gib()
        if available < minimum:
            end = watch_findings.MemoryKill(model.name, unit.name, phase, minimum, available)
            self._end_model(end, model, unit.main_pid)

    def _end_model(
        self, end: watch_findings.MemoryKill, model: config.Model, main_pid: int
    ) -> None:
        switching = switch_lock.holder(self.paths.switch_lock)
        try:
            # In /run, and before the end: the switch that waits for the start asks why it failed.
            watch_findings.save(self.paths, end)
        except OSError as error:
            write_to_journal(f"not noted in {self.paths.findings}: {errors.why(error)}")
        self._kill_engine_processes(model, main_pid)
        write_to_journal(f"{model.name}: {end.reason}")
        # The stop waits until all is gone, with a container that Docker did not end.
        _control_unit("stop", model.unit)
        if model.cluster is not None:
            write_to_journal(f"{model.name}: left to the cluster's agents, which leave it down")
        elif switching is not None:
            write_to_journal(
                f"{model.name}: what follows is left to who was switching: {switching}"
            )
        else:
            try:
                self.fall_back(model.name, self.paths)
            except (errors.Problem, transient_job.OtherJobRunning) as problem:
                write_to_journal(f"{model.name}: nothing started in its place: {problem}")

    def _kill_engine_processes(self, model: config.Model, main_pid: int) -> None:
        """Kill everything of the engine at once: there is no time for an orderly end.

        The engine comes first: systemd and Docker answer late on a host that is busy or short of
        memory.
        """
        if model.container is None:
            # systemd starts it as the leader of a group, and an engine's other processes are in it.
            _sigkill(os.killpg, main_pid)
        else:
            inside = container_processes.process_ids_of_container(model.container, self.paths)
            # All processes of a container end with its first one. Docker may answer late or never
            # on such a host, so it is asked only for one that an earlier deploy started.
            for pid in inside or [self._container_pid(model.container)]:
                _sigkill(os.kill, pid)
        # Before RestartSec= is over.
        _control_unit("stop", model.unit, "--no-block")
        _control_unit("kill", model.unit, "--signal=KILL")

    def _container_pid(self, container: str) -> int:
        """Return the first pid of a running container from Docker; 0 if none runs."""
        try:
            document = self.docker.container(container)
        except (docker_api.DockerUnreachable, docker_api.DockerError) as error:
            write_to_journal(f"container {container} not killed: {error}")
            return 0
        return int(document["State"]["Pid"]) if document else 0


def _phase(unit: units.Unit) -> str | None:
    """Return an engine's phase, or None; the gate before it waits for memory itself."""
    if not unit.main_pid:
        return None
    return {"loading": LOADING, "hot": SERVING}.get(unit.state)


def minimums(model: config.Model) -> dict[str, float]:
    """Return the minimum of MemAvailable by phase, GiB."""
    return {LOADING: model.minimum_loading_gib, SERVING: model.minimum_serving_gib}


def _sigkill(kill: Callable[[int, int], None], pid: int) -> None:
    """Send SIGKILL, and report a refusal of the kernel, because systemd is asked next.

    A process that is gone is ignored, and so is pid 0, which would be this program itself.
    """
    try:
        if pid > 0:
            kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except OSError as error:
        write_to_journal(f"process {pid} not killed: {errors.why(error)}")


def _control_unit(verb: str, unit: str, *options: str) -> None:
    """Have systemd do this and report a refusal; nothing else can be done about it here."""
    try:
        units.control_units(verb, unit, options=options, limit_s=_STOP_LIMIT_S)
    except errors.Problem as problem:
        write_to_journal(str(problem))


def start_replacement_job(name: str, paths: layout.Paths) -> None:
    """Start the job that starts the replacement of a model."""
    transient_job.start_job(
        switch_commands.replacement_job(name, paths), paths, say=lambda _: None, wait=False
    )


def write_to_journal(line: str) -> None:
    """Write one line to the journal."""
    event_lines.say(f"lockstep memory: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    program_command_lines.parser(__doc__).parse_args(argv)
    watch = MemoryWatch(paths or layout.Paths(), start_replacement_job)
    last_message = ""
    while True:
        try:
            pause_s, last_message = watch.check_memory(), ""
        except (OSError, errors.Problem) as problem:
            # A fault of one look must not end the watch.
            if str(problem) != last_message:
                last_message = str(problem)
                write_to_journal(last_message)
            pause_s = _LONGEST_S
        clock.sleep(pause_s)
