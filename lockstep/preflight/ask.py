"""The questions of preflight to a host: paths, ports, addresses, and pending downloads."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lockstep.inventory.host import HostPlan, checkpoints_of, images_of
from lockstep.inventory.settings import Sources
from lockstep.lock.engine_id import engine_id
from lockstep.lock.image_reference import DEFAULT_REGISTRY, parse, pull_reference
from lockstep.lock.lock_items import needs_engine
from lockstep.lock.packages import engine_repositories, mirror_url
from lockstep.lock.pins import Pins
from lockstep.preflight import tls
from lockstep.system.accounts import people
from lockstep.system.folders import IMAGE_STORE
from lockstep.system.netplan import NETPLAN
from lockstep.system.tools import tool_environments
from lockstep.units.backup_unit import KEPT, extra_backup_folders
from lockstep.units.docker_run import DOCKER, cache_volume

# Kinds of downloads beside images; each is fetched only if it is not on the host yet.
CHECKPOINTS, TOOLS, ENGINE = "checkpoints", "tools", "engine"


def questions(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Return the question for the reader `preflight`."""
    settings, fabric = plan.settings, plan.settings.fabric
    return {
        "paths": [
            *(settings.paths.hub_cache, settings.paths.engines, IMAGE_STORE),
            *((KEPT, *extra_backup_folders(plan)) if settings.backup.enabled else ()),
        ],
        "cache": settings.paths.hub_cache,
        "reach": addresses(plan),
        "needs": _needs(plan, pins),
        "ports": list(port_owners(plan)),
        "checkpoints": checkpoints_of(plan),
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
    """Return the names of the containers and volumes that the host's units make."""
    units = [
        unit for model in plan.models for _, unit, recipe in model.forms if model.image_of(recipe)
    ]
    containers, volumes = units[:], [cache_volume(unit) for unit in units]
    if plan.settings.webui.enabled:
        containers.append(plan.settings.webui.unit)
        volumes.append(plan.settings.webui.volume)
    return {"containers": containers, "volumes": volumes}


def port_owners(plan: HostPlan) -> dict[int, str]:
    """Return port at which our software is to listen → its name."""
    settings, gateway = plan.settings, plan.settings.gateway
    owners = {port: model.name for model in plan.models for port in model.ports}
    owners[gateway.port] = "gateway"
    if gateway.tls is not None:
        owners[gateway.tls_port] = "gateway"
    if settings.webui.enabled:
        owners[settings.webui.port] = "webui"
    owners |= {port: f"monitoring.{key}" for key, port in settings.monitoring.ports.items()}
    if plan.backups.of:
        owners[settings.backup.port] = "backup"
    return owners


def _needs(plan: HostPlan, pins: Pins) -> dict[str, dict[str, list[str]]]:
    """Return download → folder → files in it on a host that has the download already."""
    settings = plan.settings
    hub = f"{settings.paths.hub_cache}/hub"
    needs: dict[str, dict[str, list[str]]] = {CHECKPOINTS: {}, TOOLS: {}}
    for name in checkpoints_of(plan):
        pin = pins.checkpoints[name]
        # The layout of huggingface_hub's cache.
        folder = f"{hub}/models--{name.replace('/', '--')}/snapshots/{pin.commit}"
        needs[CHECKPOINTS][folder] = [file.path for file in pin.files]
    for environment in tool_environments(settings, pins).values():
        needs[TOOLS][environment.folder] = ["bin/python"]
    if needs_engine(plan.models):
        home = f"{settings.paths.engines}/{engine_id(settings, pins)}"
        needs[ENGINE] = {home: ["check.json"]}
    return needs


def addresses(plan: HostPlan) -> dict[str, list[str]]:
    """Return URL whose host must answer → what is fetched from there; images by reference.

    With a proxy, the proxy must answer. The URLs have no passwords: they go to the host on a
    command line, and into findings.
    """
    settings, engine = plan.settings, plan.settings.engine
    sources: Sources = settings.sources
    pairs: list[tuple[str | None, str]] = [
        (sources.hub, CHECKPOINTS),
        (sources.python_index, TOOLS),
    ]
    if needs_engine(plan.models):
        pairs += [(sources.python_index, ENGINE), (sources.torch_index, ENGINE)]
        pairs += [(sources.flashinfer_index, ENGINE)] if engine.flashinfer else []
        trees = engine_repositories(settings)
        pairs += [(mirror_url(tree.url, sources), ENGINE) for tree in trees]
        pairs += [(sources.vllm_wheels, ENGINE)] if engine.git and engine.precompiled else []
    pairs += [(_registry(name, sources), name) for name in images_of(plan)]
    proxies = [url for url in (settings.proxy.http, settings.proxy.https) if url]
    all_addresses: dict[str, list[str]] = {}
    for url, need in pairs:
        for url_text in map(_without_login, (proxies or [url]) if url else []):
            if need not in all_addresses.setdefault(url_text, []):
                all_addresses[url_text].append(need)
    return all_addresses


def _registry(image: str, sources: Sources) -> str:
    registry = parse(image).registry
    registry = sources.registries.get(registry, registry)
    # The registry of Docker answers under another name than its images carry.
    address = "registry-1.docker.io" if registry == DEFAULT_REGISTRY else registry
    plain = registry in sources.plain_registries
    return f"{'http' if plain else 'https'}://{address}/"


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
