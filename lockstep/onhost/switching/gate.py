"""Refuse to start an engine while another one lives or memory is short.

usage: gate TARGET [--wait SECONDS]

Runs as root in ExecStartPre=+ of every model unit. Waits a bounded time for another engine to be
gone and for its memory to come back (30-120 s are normal after SGLang), drops the page cache when
it stands in the way, then refuses with numbers. Makes /run/lockstep, which the unit hides from its
engine. Where it passes, it notes the start on disk.

exit codes: 0 the engine may start, 1 told to end by somebody else than systemd (which gets 0, for
            the unit is being stopped), or a container that is not ours has the engine's name,
            2 wrong use or unreadable configuration,
            3 another engine is alive or has the port, 4 not enough memory
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from lockstep.onhost.core import clock, config, errors, layout, meminfo, output, program, runner
from lockstep.onhost.core.need import rounded_down, rounded_up
from lockstep.onhost.docker import docker_api, stop_container
from lockstep.onhost.engine import alive, gpu_holders, port
from lockstep.onhost.records import boots, ended
from lockstep.onhost.systemd import units

EXIT_OTHER_ENGINE = 3
EXIT_MEMORY = 4

# Upper end of what a stopped SGLang needs on a Spark to give its memory back (facts, 2026-11).
DEFAULT_WAIT_S = 120.0
# The kernel writes dirty pages back while it drops the cache; a slow disk must not hold the start.
_SYNC_TIMEOUT_S = 30.0


@dataclass
class Gate:
    """The gate of one target. `wait_s` bounds all waiting together."""

    target: config.Target
    host: config.Host
    paths: layout.Paths = field(default_factory=layout.Paths)
    wait_s: float = DEFAULT_WAIT_S

    def __post_init__(self) -> None:
        self._started = clock.now()
        self._docker = docker_api.Docker(self.paths.docker_socket, timeout=20)

    def pass_or_refuse(self) -> None:
        """Return when the engine may start; Problem with the numbers and the remedy otherwise."""
        self.make_hidden_folder()
        if before := ended.of(self.paths, self.target.unit):
            tell(f"last time {before}")
        self.remove_own_orphan()
        self.wait_for_other_engines()
        self.refuse_taken_port()
        self.wait_for_memory()
        self.note()

    def make_hidden_folder(self) -> None:
        """Make the folder that the unit hides from its engine; systemd starts none without it.

        After a boot nobody may have needed it yet. The mode is set, for the unit's UMask= is too
        narrow for those who ask who is switching.
        """
        if not self.paths.run.is_dir():
            self.paths.run.mkdir(parents=True, exist_ok=True)
            self.paths.run.chmod(0o755)

    def remove_own_orphan(self) -> None:
        """Remove a container of the target's own name: its unit is only about to start.

        It is what a killed docker client leaves behind, and it would hold name and memory. Problem
        where it is somebody else's, and where Docker does not answer: nothing would start it.
        """
        name = self.target.container
        if name is None:
            return
        try:
            if stop_container.stop(self._docker, name, self.wait_s, self.paths):
                tell(f"removed the orphaned container {name} of an earlier run")
        except docker_api.DockerError as error:
            tell(f"container {name} not checked: {error}")

    def wait_for_other_engines(self) -> None:
        """Wait until no other target's unit, process or container is alive."""
        told = -10.0
        while others := self.alive_elsewhere():
            if self._waited() >= self.wait_s:
                raise errors.Problem(
                    f"another engine is alive after {self._waited():.0f} s: {'; '.join(others)}. "
                    f"Only one model may be hot. Remedy: switch.sh none, then "
                    f"switch.sh {self.target.name}",
                    EXIT_OTHER_ENGINE,
                )
            if self._waited() - told >= 10:
                told = self._waited()
                tell(f"waiting for another engine to end, {told:.0f} s: {'; '.join(others)}")
            clock.sleep(1)

    def alive_elsewhere(self) -> list[str]:
        """What is alive of other targets, in words."""
        others = self.host.others(self.target.name)
        state = units.show(other.unit for other in others)
        containers = self._running({other.container for other in others if other.container})
        found = []
        for other in others:
            unit = state[other.unit]
            if unit.up:
                found.append(f"{other.unit} is {unit.active} ({unit.sub})")
            elif other.container in containers:
                found.append(
                    f"container {other.container} runs outside {other.unit} "
                    f"(docker rm -f {other.container})"
                )
            else:
                found += alive.left_of(other, self.paths)
        return found

    def refuse_taken_port(self) -> None:
        """Problem where anybody listens at the engine's port: it would be taken for the engine."""
        if others := port.strangers(self.target, self.paths):
            raise errors.Problem(
                f"{' and '.join(others)} listens at {self.target.itself.url}, where "
                f"{self.target.name} is to answer. Remedy: stop it, then "
                f"switch.sh {self.target.name}; or another port (targets.{self._data_key('port')})",
                EXIT_OTHER_ENGINE,
            )

    def wait_for_memory(self) -> None:
        """Wait until MemAvailable reaches what the target needs, dropping the page cache."""
        now = meminfo.memory(self.paths.proc)
        need = self.target.need.available(now.total)
        dropped = told = -30.0
        # MemFree decides about dropping only: vLLM before 0.20.2 counts it. MemAvailable decides
        # about starting.
        while now.free < need or now.available < need:
            if self._waited() - dropped >= 30:
                dropped = self._waited()
                tell(
                    f"{now.free:.1f} GiB free, {rounded_down(now.available)} GiB available of "
                    f"{rounded_up(need)} needed: dropping the page cache"
                )
                self.drop_page_cache()
                now = meminfo.memory(self.paths.proc)
            if now.available >= need:
                break
            if self._waited() >= self.wait_s:
                raise self._short(now)
            if self._waited() - told >= 10:
                told = self._waited()
                tell(
                    f"waiting for memory, {told:.0f} s: {rounded_down(now.available)} GiB "
                    f"available, {rounded_up(need)} GiB needed"
                )
            clock.sleep(1)
            now = meminfo.memory(self.paths.proc)
        found = f"{rounded_down(now.available)} of {now.total:.1f} GiB available"
        tell(f"{found}, {rounded_up(need)} GiB needed")

    def note(self) -> None:
        """Note on disk that the target is starting; failing is no error."""
        try:
            boots.noted(self.paths, self.target.name, boots.STARTING)
        except OSError as error:
            tell(f"start not noted in {self.paths.boots}: {errors.why(error)}")

    def _short(self, now: meminfo.Memory) -> errors.Problem:
        need = self.target.need.available(now.total)
        if need > now.total:
            remedy = "this host can never run it: bind a smaller recipe to the target"
        else:
            # What is on the GPU, `ps` charges to nobody.
            held = gpu_holders.in_words(self.host, self.paths)
            see = "see what holds it with `ps -eo rss,pid,user,args --sort=-rss | head`, stop it, "
            remedy = (
                (f"{'; '.join(held)}; " if held else see)
                + f"then switch.sh {self.target.name}; where nothing can be stopped, another share "
                f"(targets.{self._data_key('overrides')} gpu_memory_utilization, "
                "`lockstep help fit`)"
            )
        return errors.Problem(
            f"{self.target.name} needs {rounded_up(need)} GiB, {rounded_down(now.available)} GiB "
            f"available after {self._waited():.0f} s (of {now.total:.1f} GiB). Remedy: {remedy}",
            EXIT_MEMORY,
        )

    def _data_key(self, key: str) -> str:
        """Where the inventory says it: of a fallback it stands at the target that has it."""
        behind = (each for each in self.host.targets.values() if each.fallback == self.target.name)
        owner = next(behind, self.target)
        other = key == "overrides" and owner.engine != self.target.engine
        return f"{owner.name}.{'fallback_' if other else ''}{key}"

    def drop_page_cache(self) -> None:
        """Write dirty pages back, then have the kernel give the cache up; failing is no error."""
        # What a slow disk has not taken by then stays in memory; everything else can go. A `sync`
        # that waits for the disk cannot be killed before, and is left to its end.
        with suppress(errors.Problem):
            runner.run(["sync"], timeout=_SYNC_TIMEOUT_S)
        meminfo.free_pages(self.paths.proc, tell)

    def _running(self, names: set[str]) -> set[str]:
        if not names:
            return set()
        try:
            return set(self._docker.running(names))
        except (docker_api.Unreachable, docker_api.DockerError) as error:
            tell(f"containers not checked: {error}")
            return set()

    def _waited(self) -> float:
        return clock.now() - self._started


def tell(line: str) -> None:
    """One line for the journal, with the mark by which switch.sh finds it."""
    output.say(f"lockstep gate: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("target")
    parser.add_argument("--wait", type=float, default=DEFAULT_WAIT_S, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.targets)
    Gate(host.target(options.target), host, paths, options.wait).pass_or_refuse()
    return errors.EXIT_DONE
