"""The truth about a host's models, from systemd, Docker and the engine; never from a state file."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.cluster import cluster_status, runs
from lockstep.onhost.core import config, errors, layout, meminfo, output, switch_lock, terminal
from lockstep.onhost.core.need import rounded_up
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import alive, generates, gpu_holders, log_phases, sense_record
from lockstep.onhost.images import image_check
from lockstep.onhost.records import boots, ended, switches
from lockstep.onhost.switching import gpu_watch, switch_job, wedge_state
from lockstep.onhost.systemd import generation, units


@dataclass(frozen=True)
class TargetStatus:
    """One target: `state` is hot, loading, stopping, restarting, failed or off.

    `wedge` is what the wedge watch did to it since boot, `ended` how the memory floor ended it,
    `sense` what the last look found at the process that runs now, `needs_gib` what must be
    available before it starts, `usual_s` the time that a switch to it takes here (None: none is on
    record), and `unasked` why the engine of its image could not be asked about the recipe. `kind`
    says what the model is asked for.
    """

    name: str
    state: str
    unit: str
    recipe: str
    engine: str
    url: str
    since: float | None
    ready: bool | None = None
    detail: str = ""
    enabled: bool = False
    restarts: int = 0
    fallback_of: str | None = None
    wedge: str | None = None
    sense: str | None = None
    ended: str | None = None
    needs_gib: float = 0.0
    usual_s: float | None = None
    kind: str = "chat"
    unasked: str | None = None


@dataclass(frozen=True)
class Status:
    """One host; `problems` are broken rules with their remedies, `unknown` what cannot be told.

    `last_boot` is how the boot before this one was cut off under a model, and `boot` why no model
    was made hot after this boot although one is asked for; only root can tell that.
    `clusters` are those that it is a member of, as its agent knows them. `held` says who else
    holds memory on the GPU; None: that was not asked.
    """

    host: str
    targets: list[TargetStatus]
    memory: meminfo.Memory
    gateway: str
    webui: str
    switching: switch_lock.Holder | None
    last_switch: str | None = None
    last_boot: str | None = None
    boot: str | None = None
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    clusters: dict[str, Any] = field(default_factory=dict)
    held: list[str] | None = None

    @property
    def hot(self) -> str | None:
        """The hot target, or None."""
        return next((target.name for target in self.targets if target.state == "hot"), None)


def gather(host: config.Host, paths: layout.Paths, *, closely: bool = True) -> Status:
    """Ask everything once: one systemctl call, one Docker call, one token of the hot engine.

    Without `closely` only what costs the engine nothing and needs no right: no token is asked for,
    and neither Docker nor the journal is read.
    """
    memory = meminfo.memory(paths.proc)
    names = [target.unit for target in host.targets.values()]
    state = units.show(
        [*names, host.webui_unit, switch_job.UNIT, generation.GATEWAY, generation.GATEWAY_SOCKET]
    )
    watched = wedge_state.load(paths)
    looked = sense_record.last(paths)
    usual = switches.usual_s(switches.load(paths))
    main = {target.fallback: target.name for target in host.targets.values() if target.fallback}
    targets = []
    for target in host.targets.values():
        unit = state[target.unit]
        ready, detail = _ready(target, unit, cluster_status.of_target(host, target), closely)
        targets.append(
            TargetStatus(
                name=target.name,
                state=unit.state,
                unit=target.unit,
                recipe=target.recipe,
                engine=target.engine,
                url=target.url,
                since=unit.since,
                ready=ready,
                detail=detail,
                enabled=unit.enabled,
                restarts=unit.restarts,
                fallback_of=main.get(target.name),
                wedge=_wedge(wedge_state.last_deed(watched, target.unit), unit),
                sense=_sense(looked.get(target.name), unit),
                ended=_ended(paths, unit),
                needs_gib=float(rounded_up(target.need.available(memory.total))),
                usual_s=usual.get(target.name),
                kind=target.kind,
                unasked=image_check.unanswered(paths.image_answers, target.image),
            )
        )
    gateway, webui = state[generation.GATEWAY], state[host.webui_unit]
    strays, unknown = _container_problems(host, state, paths) if closely else ([], [])
    return Status(
        host=host.name,
        targets=targets,
        memory=memory,
        gateway=gateway.active if gateway.installed else "not installed",
        webui=webui.active if webui.installed else "not installed",
        switching=switch_lock.holder(paths.switch_lock),
        last_switch=_last_switch(state[switch_job.UNIT], paths),
        last_boot=gpu_watch.load(paths).last_boot,
        boot=boots.not_hot(paths),
        problems=[
            *_unit_problems(targets),
            *_gateway_problems(gateway, state[generation.GATEWAY_SOCKET]),
            *_webui_problems(webui, closely),
            *strays,
            *gpu_watch.lines(paths),
        ],
        unknown=unknown,
        clusters=cluster_status.as_json(host, runs.load(paths)),
        held=gpu_holders.in_words(host, paths) if closely else None,
    )


def _ready(
    target: config.Target, unit: units.Unit, rank: str | None, closely: bool
) -> tuple[bool | None, str]:
    """Whether it answers, None where it was not asked, and what is to be said of that.

    `rank` says who answers, where this host's unit answers nobody.
    """
    if not unit.installed:
        return None, f"unit {unit.load}: run the deploy"
    if unit.state == "hot" and rank:
        return None, rank
    if unit.state == "hot" and closely:
        return generates.asked(target)
    if unit.state in ("failed", "restarting"):
        return None, _failure(unit) if closely else unit.failure
    return None, last_phase(unit) if unit.state == "loading" and closely else ""


def _wedge(deed: wedge_state.Deed | None, unit: units.Unit) -> str | None:
    if deed is None or (deed.left_down and unit.up):
        return None
    what = "left it down" if deed.left_down else "restarted it"
    return f"the wedge watch {what}: {deed.reason}; {terminal.since(deed.when)}"


def _sense(seen: sense_record.Seen | None, unit: units.Unit) -> str | None:
    if seen is None or seen.pid != unit.main_pid or unit.state != "hot":
        return None
    return f"{seen.words}; asked {terminal.since(seen.at)}"


def _ended(paths: layout.Paths, unit: units.Unit) -> str | None:
    found = None if unit.up else ended.of(paths, unit.name)
    return str(found) if found else None


def _failure(unit: units.Unit) -> str:
    ours = [line for line in units.last_lines(unit.name, 60) if "lockstep " in line]
    said = _last(ours)
    return f"{unit.failure}; {said}" if said else unit.failure


def last_phase(unit: units.Unit) -> str:
    """How far a start is, as its journal says; "" when it does not."""
    return _last(units.last_lines(unit.name, 60, unit.since))


def _last(lines: list[str]) -> str:
    """The last phase that lines of a journal tell; "" where they tell none."""
    return next(filter(None, map(log_phases.phase, reversed(lines))), "")


def _last_switch(unit: units.Unit, paths: layout.Paths) -> str | None:
    """How the last switch since boot failed, or was finished; None when that is nothing to mend."""
    if unit.active != "failed" or unit.main_status == errors.EXIT_CANCELLED:
        return None
    try:
        said = switch_job.log_file(paths).read_text(encoding="utf-8").splitlines()[-1:]
    except OSError:
        said = []
    words = "".join(said) or unit.failure
    finished = False
    if unit.result == "signal":
        words = f"cut off ({unit.failure}), then: {words}"
        finished = any(last.code == errors.EXIT_DONE for last in switches.load(paths)[:1])
    return f"{'' if finished else 'FAILED '}{terminal.since(unit.since)}: {words}"


def _unit_problems(targets: list[TargetStatus]) -> list[str]:
    up = sorted({target.unit for target in targets if target.state in ("hot", "loading")})
    problems = []
    if len(up) > 1:
        said = f"{len(up)} engines at once: {', '.join(up)}"
        problems.append(f"{said}. Remedy: switch.sh none, then one target")
    starting = [target.unit for target in targets if target.enabled]
    remedy = "starts at boot. Remedy: sudo systemctl disable"
    return problems + [f"{unit} {remedy} {unit}" for unit in starting]


def _gateway_problems(gateway: units.Unit, ports: units.Unit) -> list[str]:
    """What keeps the gateway from answering; between two runs its ports stay open."""
    found = []
    if ports.installed and not ports.up:
        said = f"the gateway's ports are closed: {ports.name} is {ports.active} ({ports.failure})"
        remedy = f"sudo systemctl restart {ports.name}, and journalctl -u {ports.name} says why"
        found.append(f"{said}. Remedy: {remedy}")
    again = gateway.state == "loading" and gateway.restarts
    if gateway.installed and (again or gateway.state not in ("hot", "loading", "stopping")):
        said = f"the gateway is down, and nobody is answered at its ports: {gateway.state}"
        if again:
            said += f" after {gateway.restarts} starts that failed"
        elif gateway.state != "off":
            said += f" ({gateway.failure})"
        verb = "start" if gateway.state in ("off", "failed") else "status"
        remedy = f"journalctl -u {gateway.name} says why; sudo systemctl {verb} {gateway.name}"
        found.append(f"{said}. Remedy: {remedy}")
    return found


def _webui_problems(webui: units.Unit, closely: bool) -> list[str]:
    """Why Open WebUI does not start: its journal names who else listens at its port."""
    again = webui.state == "loading" and webui.restarts
    if not webui.installed or not (again or webui.state in ("failed", "restarting")):
        return []
    why = _failure(webui) if closely else webui.failure
    return [f"Open WebUI is down: {why}. Remedy: journalctl -u {webui.name} says more"]


def _container_problems(
    host: config.Host, state: dict[str, units.Unit], paths: layout.Paths
) -> tuple[list[str], list[str]]:
    """Engine containers that no started unit answers for, and why that could not be told."""
    try:
        running = docker_api.Docker(paths.docker_socket, timeout=5).running()
    except (docker_api.Unreachable, docker_api.DockerError) as error:
        known = [
            f"{words}. Remedy: switch.sh none"
            for target in host.targets.values()
            if target.container and not state[target.unit].up
            for words in alive.left_of(target, paths)
        ]
        away = isinstance(error, docker_api.Unreachable)
        if away and not any(target.container for target in host.targets.values()):
            return [], []
        return known, [f"containers: {error}"]
    owners = {target.container: target for target in host.targets.values() if target.container}
    problems = []
    for name, container in sorted(running.items()):
        owner = owners.get(name)
        image = str(container.get("Image", ""))
        stray = owner is not None and not state[owner.unit].up
        foreign = owner is None and any(
            word in image for engine in engines.ENGINES.values() for word in engine.images
        )
        if stray or foreign:
            problems.append(
                f"container {name} ({image.partition('@')[0]}) runs outside any started unit. "
                f"Remedy: docker rm -f {name}"
            )
    return problems, []


def as_json(status: Status) -> dict[str, Any]:
    """The same facts for programs."""
    found = asdict(status)
    memory = found.pop("memory")
    return {
        "host": status.host,
        "hot": status.hot,
        **found,
        "targets": {target["name"]: target for target in found["targets"]},
        "memory_gib": {key: round(value, 2) for key, value in memory.items()},
    }


def lines(status: Status, columns: int, now: float | None = None) -> list[str]:
    """The status as text of at most `columns` columns."""
    now = time.time() if now is None else now
    out: list[str] = []

    def say(text: object, indent: str = "") -> None:
        if text:
            out.extend(terminal.wrapped(str(text), columns, indent))

    say(status.switching and f"NOW: {status.switching}")
    say(status.last_switch and f"last switch {status.last_switch}")
    say(status.last_boot and f"last boot {status.last_boot}")
    say(status.boot and f"after the boot: {status.boot}")
    for problem in status.problems:
        say(f"BROKEN: {problem}")
    pad = max((len(target.name) for target in status.targets), default=0)
    for target in status.targets:
        up = target.state != "off"
        since = f" since {terminal.since(target.since, now)}"
        when = since if up else f", needs {rounded_up(target.needs_gib)} GiB"
        say(f"{target.name:<{pad}}  {target.state}{when}")
        say(up and target.recipe, "  ")
        if target.ready is not None:
            say("ready" if target.ready else "NOT READY", "  ")
        say(target.detail, "  ")
        say(up and target.fallback_of and f"fallback of {target.fallback_of}", "  ")
        unasked = "its start will tell whether the engine takes the recipe"
        say(target.unasked and f"{unasked}: {target.unasked}", "  ")
        for text in (target.sense, target.ended, target.wedge):
            say(text, "  ")
        say(up and target.restarts and f"restarted {target.restarts} times", "  ")
    for line in cluster_status.lines(status.clusters, now):
        text = line.strip()
        say(text, line[: len(line) - len(text)])
    memory = status.memory
    say(f"memory {memory.available:.1f} of {memory.total:.1f} GiB available")
    for held in status.held or ():
        say(held, "  ")
    say(f"gateway {status.gateway}")
    say(f"Open WebUI {status.webui}")
    for what in status.unknown:
        say(f"could not tell: {what}")
    return [f"{status.host}: {status.hot or 'no model'} hot", *out]


def render(status: Status) -> None:
    """Print the status; the headline and what is broken stand out on a terminal."""
    first, *rest = lines(status, terminal.width())
    output.say(terminal.bold(first))
    for line in rest:
        output.say(terminal.bold(line) if line.startswith(("BROKEN", "NOW")) else line)
