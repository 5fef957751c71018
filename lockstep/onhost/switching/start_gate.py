"""Refuse to start an engine while another one lives or memory is short.

usage: gate MODEL [--wait SECONDS]

Runs as root in ExecStartPre=+ of every model unit. Waits a bounded time for another engine to be
gone and for its memory to come back (30-120 s are normal after SGLang), drops the page cache if it
stands in the way, then refuses with numbers. Makes /run/lockstep, which the unit hides from its
engine. If it passes, it has the disks with the weights read ahead in large steps, and notes the
start on disk.

exit codes: 0 the engine may start, 1 told to end by somebody else than systemd (which gets 0, for
            the unit is being stopped), or a container that is not ours has the engine's name,
            2 wrong use or unreadable configuration,
            3 another engine is alive or has the port, 4 not enough memory
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from lockstep.onhost.core import (
    clock,
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
    runner,
    unified_memory,
)
from lockstep.onhost.core.memory_requirement import rounded_down, rounded_up
from lockstep.onhost.docker import docker_api, stop_container
from lockstep.onhost.engine import foreign_listeners, gpu_holders, living_processes
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.system import disk_read_ahead
from lockstep.onhost.systemd import transient_job, units
from lockstep.onhost.weights import disk_rate, model_files

EXIT_OTHER_ENGINE = 3
EXIT_MEMORY = 4

# The longest time that a stopped SGLang needs on a Spark to release its memory (facts, 2026-11).
DEFAULT_WAIT_S = 120.0
# Dropping the cache writes dirty pages back; a slow disk must not delay the start.
_SYNC_TIMEOUT_S = 30.0


@dataclass
class Gate:
    """The gate of one model. `wait_s` limits all waiting together."""

    model: config.Model
    host: config.HostConfig
    paths: layout.Paths = field(default_factory=layout.Paths)
    wait_s: float = DEFAULT_WAIT_S

    def __post_init__(self) -> None:
        self._start_time = clock.now()
        self._docker = docker_api.Docker(self.paths.docker_socket, timeout=20)

    def pass_or_refuse(self) -> None:
        """Return when the engine may start; else raise Problem with the numbers and the remedy."""
        self.make_run_folder()
        if last_kill := watch_findings.load(self.paths).kills.get(self.model.unit):
            write_to_journal(f"last time {last_kill}")
        self.remove_own_orphan()
        self.wait_for_other_engines()
        self.refuse_taken_port()
        self.wait_for_memory()
        self.measure_disk()
        self.raise_read_ahead()
        self.record_model_starting()

    def make_run_folder(self) -> None:
        """Make the folder that the unit hides from its engine; systemd starts none without it.

        After a boot nobody may have needed it yet. The mode is set explicitly, because the unit's
        UMask= would keep others from reading who is switching.
        """
        if not self.paths.run.is_dir():
            self.paths.run.mkdir(parents=True, exist_ok=True)
            self.paths.run.chmod(0o755)

    def remove_own_orphan(self) -> None:
        """Remove a container of the model's own name, because its unit is only about to start.

        A killed docker client leaves one behind, which would hold name and memory.

        Raises:
            errors.Problem: The container is foreign, or Docker does not answer and could not start
                one.
        """
        name = self.model.container
        if name is None:
            return
        try:
            if stop_container.stop(self._docker, name, self.wait_s, self.paths):
                write_to_journal(f"removed the orphaned container {name} of an earlier run")
        except docker_api.DockerError as error:
            write_to_journal(f"container {name} not checked: {error}")

    def wait_for_other_engines(self) -> None:
        """Wait until no other model's unit, process or container is alive."""
        last_report_s = -10.0
        while live_engines := self.other_live_engines():
            if self._waited_s() >= self.wait_s:
                raise errors.Problem(
                    f"another engine is alive after {self._waited_s():.0f} s: "
                    f"{'; '.join(live_engines)}. Only one model may be hot. Remedy: switch.sh "
                    f"none, then switch.sh {self.model.name}",
                    EXIT_OTHER_ENGINE,
                )
            if self._waited_s() - last_report_s >= 10:
                last_report_s = self._waited_s()
                write_to_journal(
                    f"waiting for another engine to end, {last_report_s:.0f} s: "
                    f"{'; '.join(live_engines)}"
                )
            clock.sleep(1)

    def other_live_engines(self) -> list[str]:
        """Return descriptions of other models' units, processes and containers that are alive."""
        other_models = self.host.other_models(self.model.name)
        state = units.units_by_name(model.unit for model in other_models)
        containers = self._running_containers(
            {model.container for model in other_models if model.container}
        )
        live_engines = []
        for model in other_models:
            unit = state[model.unit]
            if unit.up:
                live_engines.append(f"{model.unit} is {unit.active} ({unit.sub})")
            elif model.container in containers:
                live_engines.append(
                    f"container {model.container} runs outside {model.unit} (docker rm -f "
                    f"{model.container})"
                )
            else:
                live_engines += living_processes.leftover_process_texts(model, self.paths)
        return live_engines

    def refuse_taken_port(self) -> None:
        """Raise Problem if anybody listens at the port, and would be taken for the engine."""
        if strangers := foreign_listeners.foreign_listener_texts(self.model, self.paths):
            raise errors.Problem(
                f"{' and '.join(strangers)} listens at {self.model.at_engine_address.url}, where "
                f"{self.model.name} is to answer. Remedy: stop it, then switch.sh "
                f"{self.model.name}; or another port (models.{self._inventory_key('port')})",
                EXIT_OTHER_ENGINE,
            )

    def wait_for_memory(self) -> None:
        """Wait until MemAvailable reaches the model's need, dropping the page cache."""
        now = unified_memory.memory(self.paths.proc)
        need = self.model.memory_need.available(now.total)
        last_drop_s = last_report_s = -30.0
        # MemFree decides about dropping only: vLLM before 0.20.2 counts it. MemAvailable decides
        # about starting.
        while now.free < need or now.available < need:
            if self._waited_s() - last_drop_s >= 30:
                last_drop_s = self._waited_s()
                write_to_journal(
                    f"{now.free:.1f} GiB free, {rounded_down(now.available)} GiB available of "
                    f"{rounded_up(need)} needed: dropping the page cache"
                )
                self.drop_page_cache()
                now = unified_memory.memory(self.paths.proc)
            if now.available >= need:
                break
            if self._waited_s() >= self.wait_s:
                raise self._memory_shortage(now)
            if self._waited_s() - last_report_s >= 10:
                last_report_s = self._waited_s()
                write_to_journal(
                    f"waiting for memory, {last_report_s:.0f} s: {rounded_down(now.available)} "
                    f"GiB available, {rounded_up(need)} GiB needed"
                )
            clock.sleep(1)
            now = unified_memory.memory(self.paths.proc)
        memory_text = f"{rounded_down(now.available)} of {now.total:.1f} GiB available"
        write_to_journal(f"{memory_text}, {rounded_up(need)} GiB needed")

    def raise_read_ahead(self) -> None:
        """Have the disks with the weights read ahead in large steps until the engine is ready.

        An engine may open its files before a program of ExecStartPost= has begun. For a rank above
        0 there is none, and another program puts the read-ahead back. Failing is no error.
        """
        cluster = self.host.cluster_of_model(self.model.name)
        try:
            if cluster is not None and cluster.rank:
                _start_rank_load_guard(self.model, self.paths)
            files = model_files.model_files(self.model, self.paths)
            devices = dict.fromkeys(file.stat().st_dev for file in files)
        except (OSError, errors.Problem, transient_job.OtherJobRunning) as error:
            write_to_journal(f"reads stay small while it loads: {errors.why(error)}")
        else:
            if not files and self.model.weights:
                names = ", ".join(self.model.weights)
                write_to_journal(f"reads stay small while it loads: no file of {names} is seen")
            disk_read_ahead.raise_read_ahead(self.model.name, devices, self.paths, write_to_journal)

    def record_model_starting(self) -> None:
        """Note on disk that the model is starting; failing is no error."""
        try:
            models_by_boot.record_model_phase(self.paths, self.model.name, models_by_boot.STARTING)
        except OSError as error:
            write_to_journal(f"start not noted in {self.paths.boots}: {errors.why(error)}")

    def measure_disk(self) -> None:
        """Measure the disk of the weights, unless that was done since boot; failing is no error."""
        try:
            files = model_files.model_files(self.model, self.paths)
            rate = disk_rate.measure_once(self.paths, files)
        except OSError as error:
            write_to_journal(f"the disk of the weights was not measured: {errors.why(error)}")
            return
        if rate is not None:
            write_to_journal(f"the disk of the weights gives {rate:.0f} MB/s")

    def _memory_shortage(self, now: unified_memory.Memory) -> errors.Problem:
        need = self.model.memory_need.available(now.total)
        if need > now.total:
            remedy = "this host can never run it: bind a smaller recipe to the model"
        else:
            # `ps` charges GPU memory to no process.
            holder_texts = gpu_holders.foreign_holder_sentences(self.host, self.paths)
            see = "see what holds it with `ps -eo rss,pid,user,args --sort=-rss | head`, stop it, "
            remedy = (
                (f"{'; '.join(holder_texts)}; " if holder_texts else see)
                + f"then switch.sh {self.model.name}; where nothing can be stopped, another "
                f"share (models.{self._inventory_key('overrides')} gpu_memory_utilization, "
                "`lockstep help fit`)"
            )
        return errors.Problem(
            f"{self.model.name} needs {rounded_up(need)} GiB, {rounded_down(now.available)} GiB "
            f"available after {self._waited_s():.0f} s (of {now.total:.1f} GiB). Remedy: {remedy}",
            EXIT_MEMORY,
        )

    def _inventory_key(self, key: str) -> str:
        """Return the key's place in the inventory; a fallback's key is that of its model."""
        behind = (model for model in self.host.models.values() if model.fallback == self.model.name)
        owner = next(behind, self.model)
        is_fallback = key == "overrides" and owner.engine != self.model.engine
        return f"{owner.name}.{'fallback_' if is_fallback else ''}{key}"

    def drop_page_cache(self) -> None:
        """Write dirty pages back, then make the kernel drop the cache; failing is no error."""
        # What a slow disk has not taken by then stays in memory; everything else can go. A `sync`
        # that waits for the disk cannot be killed before, and is left to its end.
        with suppress(errors.Problem):
            runner.run(["sync"], timeout=_SYNC_TIMEOUT_S)
        unified_memory.drop_and_compact_cache(self.paths.proc, write_to_journal)

    def _running_containers(self, names: set[str]) -> set[str]:
        if not names:
            return set()
        try:
            return set(self._docker.running_containers(names))
        except (docker_api.DockerUnreachable, docker_api.DockerError) as error:
            write_to_journal(f"containers not checked: {error}")
            return set()

    def _waited_s(self) -> float:
        return clock.now() - self._start_time


def write_to_journal(line: str) -> None:
    """Write one line to the journal, with the mark by which switch.sh finds it."""
    event_lines.say(f"lockstep gate: {line}")


def _start_rank_load_guard(model: config.Model, paths: layout.Paths) -> None:
    """Start the guard over the load of a rank, a program of `cluster`; raise Problem or
    OtherJobRunning if systemd refuses, or another rank's has not ended."""
    job = transient_job.Job(
        name="rank-guard",
        unit_prefix="lockstep-",
        argv=program_command_lines.command("guard-rank", model.name),
        # Its lines are among those of the rank, and nothing remains of it.
        properties=(
            "StandardOutput=journal",
            f"SyslogIdentifier={model.unit.removesuffix('.service')}",
            "RemainAfterExit=no",
            "CollectMode=inactive-or-failed",
            "OOMScoreAdjust=-900",
        ),
    )
    transient_job.start_job(job, paths, lambda _: None, wait=False)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--wait", type=float, default=DEFAULT_WAIT_S, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.models)
    Gate(host.model(options.model), host, paths, options.wait).pass_or_refuse()
    return errors.EXIT_DONE
