"""The state of a host's models, from systemd, Docker and the engine; never from a state file."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.cluster import cluster_status, run_records
from lockstep.onhost.core import (
    config,
    errors,
    event_lines,
    layout,
    switch_lock,
    terminal_lines,
    unified_memory,
)
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import (
    gpu_holders,
    hot_engine_check,
    living_processes,
    log_phases,
)
from lockstep.onhost.images import model_recipe_check
from lockstep.onhost.records import models_by_boot, switch_history, watch_findings
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import outdated_units, units


@dataclass(frozen=True)
class ModelStatus:
    """One model: `state` is hot, loading, stopping, restarting, failed or off.

    `wedge` is the wedge watch's last action since boot, `memory_kill` how the memory watch ended
    it, `sense` the finding of the last look at the running process, `needs_gib` the memory (GiB)
    that must be available before it starts, `usual_s` the usual seconds of a switch to it here
    (None without a record), and `silence_reason` why its image's engine could not be asked about
    the recipe. `kind` is the model's kind of requests.
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
    memory_kill: str | None = None
    needs_gib: float = 0.0
    usual_s: float | None = None
    kind: str = "chat"
    silence_reason: str | None = None


@dataclass(frozen=True)
class Status:
    """One host; `problems` are broken rules with their remedies, `unknown` are facts not found.

    `last_boot` is how the boot before this one was cut off under a model, and `boot` why no model
    was made hot after this boot although one is wanted; only root can tell that. `clusters` are
    those that it is a member of, as its agent knows them. `memory_holders` lists other holders of
    GPU memory; None if that was not asked.
    """

    host: str
    models: list[ModelStatus]
    memory: unified_memory.Memory
    gateway: str
    webui: str
    switching: switch_lock.LockHolder | None
    last_switch: str | None = None
    last_boot: str | None = None
    boot: str | None = None
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    clusters: dict[str, Any] = field(default_factory=dict)
    memory_holders: list[str] | None = None

    @property
    def hot(self) -> str | None:
        """Name of the hot model, or None."""
        return next((model.name for model in self.models if model.state == "hot"), None)


def query_status(host: config.HostConfig, paths: layout.Paths, *, closely: bool = True) -> Status:
    """Query everything once: one systemctl call, one Docker call, one token of the hot engine.

    Without `closely`, only queries that cost the engine nothing and need no right are made: no
    token is requested, and neither Docker nor the journal is read.
    """
    memory = unified_memory.memory(paths.proc)
    names = [model.unit for model in host.models.values()]
    state = units.units_by_name(
        [
            *names,
            host.webui_unit,
            switch_commands.UNIT,
            outdated_units.GATEWAY,
            outdated_units.GATEWAY_SOCKET,
        ]
    )
    watches = watch_findings.load(paths)
    usual = switch_history.usual_seconds_by_model(switch_history.load(paths))
    main = {model.fallback: model.name for model in host.models.values() if model.fallback}
    models = []
    for model in host.models.values():
        unit = state[model.unit]
        ready, detail = _readiness(
            model, unit, cluster_status.answering_member_text(host, model), closely
        )
        models.append(
            ModelStatus(
                name=model.name,
                state=unit.state,
                unit=model.unit,
                recipe=model.recipe,
                engine=model.engine,
                url=model.url,
                since=unit.since,
                ready=ready,
                detail=detail,
                enabled=unit.is_enabled,
                restarts=unit.restarts,
                fallback_of=main.get(model.name),
                wedge=_wedge_text(watches.wedge.last_deed(model.unit), unit),
                sense=_sense_text(watches.senses.get(model.name), unit),
                memory_kill=_kill_text(watches, unit),
                needs_gib=float(rounded_up(model.memory_need.available(memory.total))),
                usual_s=usual.get(model.name),
                kind=model.kind,
                silence_reason=model_recipe_check.unanswered_reason(
                    paths.image_answers, model.image
                ),
            )
        )
    gateway, webui = state[outdated_units.GATEWAY], state[host.webui_unit]
    strays, unknown = _stray_container_problems(host, state, paths) if closely else ([], [])
    return Status(
        host=host.name,
        models=models,
        memory=memory,
        gateway=gateway.active if gateway.is_installed else "not installed",
        webui=webui.active if webui.is_installed else "not installed",
        switching=switch_lock.holder(paths.switch_lock),
        last_switch=_failed_switch_text(state[switch_commands.UNIT], paths),
        last_boot=watches.gpu.last_boot,
        boot=models_by_boot.no_model_reason_of_boot(paths),
        problems=[
            *_model_unit_problems(models),
            *_gateway_problems(gateway, state[outdated_units.GATEWAY_SOCKET]),
            *_webui_problems(webui, closely),
            *strays,
            *watches.gpu.lines,
        ],
        unknown=unknown,
        clusters=cluster_status.as_json(host, run_records.recorded_runs(paths)),
        memory_holders=gpu_holders.foreign_holder_sentences(host, paths) if closely else None,
    )


def _readiness(
    model: config.Model, unit: units.Unit, rank: str | None, closely: bool
) -> tuple[bool | None, str]:
    """Return whether the model answers (None if it was not asked), and a remark on that.

    `rank` names the member that answers, if this host's unit answers nobody.
    """
    if not unit.is_installed:
        return None, f"unit {unit.load}: run the deploy"
    if unit.state == "hot" and rank:
        return None, rank
    if unit.state == "hot" and closely:
        return hot_engine_check.generating_state(model)
    if unit.state in ("failed", "restarting"):
        return None, _failure_text(unit) if closely else unit.failure
    return None, last_phase(unit) if unit.state == "loading" and closely else ""


def _wedge_text(deed: watch_findings.Deed | None, unit: units.Unit) -> str | None:
    if deed is None or (deed.left_down and unit.up):
        return None
    deed_text = "left it down" if deed.left_down else "restarted it"
    return (
        f"the wedge watch {deed_text}: {deed.reason}; {terminal_lines.moment_with_age(deed.when)}"
    )


def _sense_text(last_look: watch_findings.SenseLook | None, unit: units.Unit) -> str | None:
    if last_look is None or last_look.pid != unit.main_pid or unit.state != "hot":
        return None
    return f"{last_look.words}; asked {terminal_lines.moment_with_age(last_look.at)}"


def _kill_text(watches: watch_findings.Findings, unit: units.Unit) -> str | None:
    kill = None if unit.up else watches.kills.get(unit.name)
    return str(kill) if kill else None


def _failure_text(unit: units.Unit) -> str:
    lines = reversed(units.last_lines(unit.name, 60))
    last_line = next(filter(None, map(log_phases.own_line, lines)), "")
    return f"{unit.failure}; {last_line}" if last_line else unit.failure


def last_phase(unit: units.Unit) -> str:
    """Return the last phase of a start in its journal, or ""."""
    lines = units.last_lines(unit.name, 60, unit.since)
    return next(filter(None, map(log_phases.announced_phase, reversed(lines))), "")


def _failed_switch_text(unit: units.Unit, paths: layout.Paths) -> str | None:
    """Return how the last switch since boot failed or was finished; None if all is well."""
    if unit.active != "failed" or unit.main_status == errors.EXIT_CANCELLED:
        return None
    try:
        last_lines = switch_commands.log_file(paths).read_text(encoding="utf-8").splitlines()[-1:]
    except OSError:
        last_lines = []
    words = "".join(map(event_lines.read_event, last_lines)) or unit.failure
    is_finished = False
    if unit.result == "signal":
        words = f"cut off ({unit.failure}), then: {words}"
        is_finished = any(last.code == errors.EXIT_DONE for last in switch_history.load(paths)[:1])
    return (
        f"{'' if is_finished else 'FAILED '}{terminal_lines.moment_with_age(unit.since)}: {words}"
    )


def _model_unit_problems(models: list[ModelStatus]) -> list[str]:
    up = sorted({model.unit for model in models if model.state in ("hot", "loading")})
    problems = []
    if len(up) > 1:
        message = f"{len(up)} engines at once: {', '.join(up)}"
        problems.append(f"{message}. Remedy: switch.sh none, then one model")
    starting = [model.unit for model in models if model.enabled]
    remedy = "starts at boot. Remedy: sudo systemctl disable"
    return problems + [f"{unit} {remedy} {unit}" for unit in starting]


def _gateway_problems(gateway: units.Unit, ports: units.Unit) -> list[str]:
    """Return what keeps the gateway from answering; between two runs its ports stay open."""
    problems = []
    if ports.is_installed and not ports.up:
        message = (
            f"the gateway's ports are closed: {ports.name} is {ports.active} ({ports.failure})"
        )
        remedy = f"sudo systemctl restart {ports.name}, and journalctl -u {ports.name} says why"
        problems.append(f"{message}. Remedy: {remedy}")
    again = gateway.state == "loading" and gateway.restarts
    if gateway.is_installed and (again or gateway.state not in ("hot", "loading", "stopping")):
        message = f"the gateway is down, and nobody is answered at its ports: {gateway.state}"
        if again:
            message += f" after {gateway.restarts} starts that failed"
        elif gateway.state != "off":
            message += f" ({gateway.failure})"
        verb = "start" if gateway.state in ("off", "failed") else "status"
        remedy = f"journalctl -u {gateway.name} says why; sudo systemctl {verb} {gateway.name}"
        problems.append(f"{message}. Remedy: {remedy}")
    return problems


def _webui_problems(webui: units.Unit, closely: bool) -> list[str]:
    """Return why Open WebUI does not start; its journal names another listener at its port."""
    again = webui.state == "loading" and webui.restarts
    if not webui.is_installed or not (again or webui.state in ("failed", "restarting")):
        return []
    why = _failure_text(webui) if closely else webui.failure
    return [f"Open WebUI is down: {why}. Remedy: journalctl -u {webui.name} says more"]


def _stray_container_problems(
    host: config.HostConfig, state: dict[str, units.Unit], paths: layout.Paths
) -> tuple[list[str], list[str]]:
    """Return engine containers without a started unit, and why they could not be found."""
    try:
        running = docker_api.Docker(paths.docker_socket, timeout=5).running_containers()
    except (docker_api.DockerUnreachable, docker_api.DockerError) as error:
        known_containers = [
            f"{words}. Remedy: switch.sh none"
            for model in host.models.values()
            if model.container and not state[model.unit].up
            for words in living_processes.leftover_process_texts(model, paths)
        ]
        away = isinstance(error, docker_api.DockerUnreachable)
        if away and not any(model.container for model in host.models.values()):
            return [], []
        return known_containers, [f"containers: {error}"]
    owners = {model.container: model for model in host.models.values() if model.container}
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


def status_document(status: Status) -> dict[str, Any]:
    """Return the facts for programs."""
    document = asdict(status)
    memory = document.pop("memory")
    return {
        "host": status.host,
        "hot": status.hot,
        **document,
        "models": {model["name"]: model for model in document["models"]},
        "memory_gib": {key: round(value, 2) for key, value in memory.items()},
    }


def status_lines(status: Status, columns: int, now: float | None = None) -> list[str]:
    """Format the status as text of at most `columns` columns."""
    now = time.time() if now is None else now
    out: list[str] = []

    def say(text: object, indent: str = "") -> None:
        if text:
            out.extend(terminal_lines.wrap_text(str(text), columns, indent))

    say(status.switching and f"NOW: {status.switching}")
    say(status.last_switch and f"last switch {status.last_switch}")
    say(status.last_boot and f"last boot {status.last_boot}")
    say(status.boot and f"after the boot: {status.boot}")
    for problem in status.problems:
        say(f"BROKEN: {problem}")
    pad = max((len(model.name) for model in status.models), default=0)
    for model in status.models:
        up = model.state != "off"
        since = f" since {terminal_lines.moment_with_age(model.since, now)}"
        when = since if up else f", needs {rounded_up(model.needs_gib)} GiB"
        say(f"{model.name:<{pad}}  {model.state}{when}")
        say(up and model.recipe, "  ")
        if model.ready is not None:
            say("ready" if model.ready else "NOT READY", "  ")
        say(model.detail, "  ")
        say(up and model.fallback_of and f"fallback of {model.fallback_of}", "  ")
        note = "its start will tell whether the engine takes the recipe"
        say(model.silence_reason and f"{note}: {model.silence_reason}", "  ")
        for text in (model.sense, model.memory_kill, model.wedge):
            say(text, "  ")
        say(up and model.restarts and f"restarted {model.restarts} times", "  ")
    for line in cluster_status.status_lines(status.clusters, now):
        text = line.strip()
        say(text, line[: len(line) - len(text)])
    memory = status.memory
    say(f"memory {memory.available:.1f} of {memory.total:.1f} GiB available")
    for holder in status.memory_holders or ():
        say(holder, "  ")
    say(f"gateway {status.gateway}")
    say(f"Open WebUI {status.webui}")
    for unknown_item in status.unknown:
        say(f"could not tell: {unknown_item}")
    return [f"{status.host}: {status.hot or 'no model'} hot", *out]


def print_status(status: Status) -> None:
    """Print the status; the headline and faults stand out on a terminal."""
    first, *later_lines = status_lines(status, terminal_lines.width())
    event_lines.say(terminal_lines.bold(first))
    for line in later_lines:
        event_lines.say(terminal_lines.bold(line) if line.startswith(("BROKEN", "NOW")) else line)
