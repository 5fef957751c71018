"""The questions of preflight to a host: paths, ports, addresses, and pending downloads."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lockstep.inventory.host import HostPlan, images_of, models_of
from lockstep.inventory.settings import Sources
from lockstep.lock.engine_id import engine_id
from lockstep.lock.image_reference import DEFAULT_REGISTRY, parse, pull_reference
from lockstep.lock.packages import engine_repositories, mirrored
from lockstep.lock.pins import Pins
from lockstep.lock.wanted import needs_engine
from lockstep.preflight import tls
from lockstep.system.accounts import people
from lockstep.system.folders import IMAGE_STORE
from lockstep.system.netplan import NETPLAN
from lockstep.system.tools import tool_environments
from lockstep.units.backup_unit import KEPT, folders
from lockstep.units.docker_run import DOCKER, cache_volume

# What is fetched, beside images: each of it only where it is not on the host yet.
MODELS, TOOLS, ENGINE = "models", "tools", "engine"


def questions(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """What to ask the reader `preflight`."""
    settings, fabric = plan.settings, plan.settings.fabric
    return {
        "paths": [
            *(settings.paths.hub_cache, settings.paths.engines, IMAGE_STORE),
            *((KEPT, *folders(plan)) if settings.backup.enabled else ()),
        ],
        "cache": settings.paths.hub_cache,
        "reach": addresses(plan),
        "needs": _needs(plan, pins),
        "ports": list(port_owners(plan)),
        "models": models_of(plan),
        "accounts": [account.name for account in people(settings)],
        "sysctls": list(settings.sysctls),
        # Network interfaces that the inventory says the host has.
        "fabric": list(
            dict.fromkeys((*fabric.interfaces, *(group.interface for group in plan.groups)))
        ),
        "docker": _docker_names(plan),
        "docker_client": DOCKER,
        "netplan": NETPLAN,
        "tls": tls.question(plan),
        "images": {name: pull_reference(name, pins.images[name]) for name in images_of(plan)},
    }


def _docker_names(plan: HostPlan) -> dict[str, list[str]]:
    """Names of the containers and volumes that the host's units make."""
    units = [
        unit
        for target in plan.targets
        for _, unit, recipe in target.forms
        if target.image_of(recipe)
    ]
    containers, volumes = units[:], [cache_volume(unit) for unit in units]
    if plan.settings.webui.enabled:
        containers.append(plan.settings.webui.unit)
        volumes.append(plan.settings.webui.volume)
    return {"containers": containers, "volumes": volumes}


def port_owners(plan: HostPlan) -> dict[int, str]:
    """Port at which something of ours is to listen → who."""
    settings, gateway = plan.settings, plan.settings.gateway
    found = {port: target.name for target in plan.targets for port in target.ports}
    found[gateway.port] = "gateway"
    if gateway.tls is not None:
        found[gateway.tls_port] = "gateway"
    if settings.webui.enabled:
        found[settings.webui.port] = "webui"
    found |= {port: f"monitoring.{key}" for key, port in settings.monitoring.ports.items()}
    if plan.backups.of:
        found[settings.backup.port] = "backup"
    return found


def _needs(plan: HostPlan, pins: Pins) -> dict[str, dict[str, list[str]]]:
    """What is fetched → folder → files in it that are on a host that has it already."""
    settings = plan.settings
    hub = f"{settings.paths.hub_cache}/hub"
    found: dict[str, dict[str, list[str]]] = {MODELS: {}, TOOLS: {}}
    for name in models_of(plan):
        pin = pins.models[name]
        # The layout of huggingface_hub's cache.
        folder = f"{hub}/models--{name.replace('/', '--')}/snapshots/{pin.commit}"
        found[MODELS][folder] = [file.path for file in pin.files]
    for environment in tool_environments(settings, pins).values():
        found[TOOLS][environment.folder] = ["bin/python"]
    if needs_engine(plan.targets):
        home = f"{settings.paths.engines}/{engine_id(settings, pins)}"
        found[ENGINE] = {home: ["check.json"]}
    return found


def addresses(plan: HostPlan) -> dict[str, list[str]]:
    """URL whose host must answer → what is fetched from there; an image by its reference.

    With a proxy, the proxy is what must answer. Without the passwords in the URLs: they go to the
    host on a command line, and into findings.
    """
    settings, engine = plan.settings, plan.settings.engine
    sources: Sources = settings.sources
    pairs: list[tuple[str | None, str]] = [(sources.hub, MODELS), (sources.python_index, TOOLS)]
    if needs_engine(plan.targets):
        pairs += [(sources.python_index, ENGINE), (sources.torch_index, ENGINE)]
        pairs += [(sources.flashinfer_index, ENGINE)] if engine.flashinfer else []
        trees = engine_repositories(settings)
        pairs += [(mirrored(tree.url, sources), ENGINE) for tree in trees]
        pairs += [(sources.vllm_wheels, ENGINE)] if engine.git and engine.precompiled else []
    pairs += [(_registry(name, sources), name) for name in images_of(plan)]
    proxies = [url for url in (settings.proxy.http, settings.proxy.https) if url]
    found: dict[str, list[str]] = {}
    for url, need in pairs:
        for each in map(_without_login, (proxies or [url]) if url else []):
            if need not in found.setdefault(each, []):
                found[each].append(need)
    return found


def _registry(image: str, sources: Sources) -> str:
    registry = parse(image).registry
    registry = sources.registries.get(registry, registry)
    # Docker's own registry answers under another name than its images carry.
    address = "registry-1.docker.io" if registry == DEFAULT_REGISTRY else registry
    plain = registry in sources.plain_registries
    return f"{'http' if plain else 'https'}://{address}/"


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
