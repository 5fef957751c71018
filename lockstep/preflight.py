"""Preflight: what a host must be before the first change on any host. Pure judgement of a probe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from lockstep import kernels
from lockstep.accounts import people
from lockstep.catalogue import FOLDER
from lockstep.engine_id import engine_id
from lockstep.findings import Finding
from lockstep.hubcache import missing_bytes
from lockstep.images import DEFAULT_REGISTRY, parse, pull_reference
from lockstep.inventory import HostPlan
from lockstep.layout import IMAGE_STORE
from lockstep.packages import BUILD, locked, mirrored, precompiled
from lockstep.pins import Pins
from lockstep.settings import Sources
from lockstep.tools import tool_environments
from lockstep.variants import unit_names
from lockstep.wanted import needs_engine

GIB = 1024**3
# What is fetched, beside images: each of it only where it is not on the host yet.
MODELS, TOOLS, ENGINE = "models", "tools", "engine"

# What an image takes on disk for each compressed byte that is pulled: an allowance of ours until it
# is measured on a Spark (2026-11-21).
UNPACKED = 3


def models_of(plan: HostPlan) -> list[str]:
    """Hub ids that the host's targets need: models, drafts, borrowed files."""
    names: dict[str, None] = {}
    for target in plan.targets:
        for recipe in target.recipes:
            names[recipe.model] = None
            if recipe.lockstep.draft:
                names[recipe.lockstep.draft.model] = None
            names.update(dict.fromkeys(borrow.model for borrow in recipe.lockstep.borrow))
    # A full path is on the host already.
    return [name for name in names if not name.startswith("/")]


def images_of(plan: HostPlan) -> list[str]:
    """Image references, as asked for, that the host needs."""
    names: dict[str, None] = {}
    for target in plan.targets:
        # A fallback may run from another image, unless the inventory names one for both.
        for image in map(target.image_of, target.recipes):
            if image:
                names[image] = None
    if plan.settings.webui.enabled:
        names[plan.settings.webui.image] = None
    return list(names)


def questions(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """What to ask the host's preflight probe."""
    settings = plan.settings
    ports = [port for target in plan.targets for port in target.ports]
    if settings.webui.enabled:
        ports.append(settings.webui.port)
    return {
        "paths": [settings.paths.models, settings.paths.engines, IMAGE_STORE],
        "cache": settings.paths.hub_cache,
        "reach": addresses(plan),
        "needs": _needs(plan, pins),
        "ports": ports,
        "models": models_of(plan),
        "accounts": [account.name for account in people(settings)],
        "fabric": _fabric_asked(plan),
        "images": {name: pull_reference(name, pins.images[name]) for name in images_of(plan)},
    }


def _fabric_asked(plan: HostPlan) -> list[str]:
    """Network interfaces that the inventory says the host has."""
    fabric = plan.settings.fabric
    used = (group.interface for group in plan.groups)
    return list(dict.fromkeys((*fabric.interfaces, *used)))


def _needs(plan: HostPlan, pins: Pins) -> dict[str, dict[str, list[str]]]:
    """What is fetched → folder → files in it that are on a host that has it already."""
    settings = plan.settings
    hub = f"{settings.paths.hub_cache}/hub"
    found: dict[str, dict[str, list[str]]] = {MODELS: {}, TOOLS: {}}
    for name in models_of(plan):
        pin = pins.models[name]
        # Where the hub's client keeps a repository.
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
        trees = (engine.git, engine.transformers_git)
        pairs += [(mirrored(url, sources), ENGINE) for url in trees if url]
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


def findings(
    plan: HostPlan, pins: Pins, facts: dict[str, Any], *, now: float | None = None
) -> list[Finding]:
    """Everything about one host that speaks against a deploy.

    Args:
        plan: The host.
        pins: What will be fetched, with sizes in bytes.
        facts: What the probe answered.
        now: This machine's clock, seconds since 1970; None reads it.
    """
    host = plan.name
    found = [
        *_hardware(plan, facts),
        *_kernel(plan, facts["kernel"]),
        *_docker(plan, facts["docker"]),
        *_cdi(plan, facts),
        *_ports(plan, facts),
        *_disks(plan, pins, facts),
        *_fabric(plan, facts["fabric"]),
    ]
    for name in facts["unknown_accounts"]:
        found.append(
            Finding(
                "no-account",
                "error",
                host,
                f"there is no account {name}, which `operators` or `docker_users` names",
                f"Create it there (`adduser {name}`), or correct the inventory.",
            )
        )
    for url, fault in facts["reach"].items():
        if fault:
            found.append(
                Finding(
                    "unreachable",
                    "error",
                    host,
                    f"cannot reach {url}: {fault}",
                    "Check name resolution and proxy, or set a mirror in `sources`.",
                )
            )
    skew = abs(facts["time"] - (time.time() if now is None else now))
    if skew > plan.settings.expected.clock_skew_s:
        found.append(
            Finding(
                "clock",
                "error",
                host,
                f"its clock differs by {skew:.0f} s from this one",
                "Run `timedatectl set-ntp true` there: TLS and package signatures need it.",
            )
        )
    return found


def _fabric(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    for name in facts["absent"]:
        yield Finding(
            "no-interface",
            "error",
            plan.name,
            f"there is no network interface {name}, which `fabric` names",
            "It has " + ", ".join(facts["known"]) + ": correct the inventory, or look at the card.",
        )
    if plan.settings.fabric.netplan and not facts["netplan"]:
        yield Finding(
            "no-netplan",
            "error",
            plan.name,
            "netplan is not installed, and `fabric.netplan` is on",
            "`apt-get install netplan.io` there, or set the addresses otherwise.",
        )


def _hardware(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    expected, host = plan.settings.expected, plan.name
    if facts["architecture"] != expected.architecture:
        yield Finding(
            "architecture",
            "error",
            host,
            f"it is {facts['architecture']}, expected {expected.architecture}",
            "Is this a Spark? `expected.architecture` says what is demanded.",
        )
    release = facts["dgx"].get("DGX_SWBUILD_VERSION", "")
    if not facts["dgx"]:
        yield Finding(
            "dgx-os",
            "error",
            host,
            "/etc/dgx-release is missing: not DGX OS",
            "Install DGX OS, or name another host.",
        )
    elif expected.dgx_os and not _matches(release, expected.dgx_os):
        yield Finding(
            "dgx-os",
            "error",
            host,
            f"DGX OS {release or 'unknown'}, expected {expected.dgx_os}",
            "Update it from the DGX Dashboard.",
        )
    cuda = facts["cuda"]
    if cuda["release"] != expected.cuda_toolkit or not cuda["ptxas"]:
        shown = cuda["release"] or "no toolkit"
        shown += "" if cuda["ptxas"] else ", ptxas does not run"
        yield Finding(
            "cuda",
            "error",
            host,
            f"/usr/local/cuda is {shown}, expected {expected.cuda_toolkit} with ptxas",
            "Install the CUDA toolkit of DGX OS (apt install cuda-toolkit-13-0).",
        )
    gpu = facts["gpu"]
    if "fault" in gpu:
        yield Finding(
            "driver",
            "error",
            host,
            f"the driver does not answer: {gpu['fault']}",
            "Reboot; if it stays, update from the DGX Dashboard (README, Updating DGX OS).",
        )
    elif gpu["compute_cap"] != expected.compute_capability:
        yield Finding(
            "gpu",
            "error",
            host,
            f"GPU {gpu['name']} has compute capability {gpu['compute_cap']}, expected "
            f"{expected.compute_capability}",
            "Kernels here are built for 12.1a: this is not a GB10.",
        )
    memory = facts["memory"]["MemTotal"] / GIB
    if memory < expected.memory_gib:
        yield Finding(
            "memory",
            "error",
            host,
            f"{memory:.1f} GiB of unified memory, expected {expected.memory_gib:g} GiB",
            "Is something else holding memory at boot (hugepages, a second GPU)?",
        )


def _kernel(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    rdma = any(group.devices for group in plan.groups)
    yield from kernels.findings(plan.name, facts, kernels.load(FOLDER), rdma=rdma)


def _matches(version: str, wanted: str) -> bool:
    try:
        return Version(version) in SpecifierSet(wanted)
    except InvalidVersion:
        return False


def _docker(plan: HostPlan, docker: dict[str, Any]) -> Iterator[Finding]:
    host = plan.name
    if "fault" in docker:
        yield Finding(
            "docker",
            "error",
            host,
            f"Docker does not answer: {docker['fault']}",
            "Run `systemctl status docker` there.",
        )
    elif "nvidia" not in docker["runtimes"] and not docker["cdi"]:
        yield Finding(
            "docker-gpu",
            "error",
            host,
            "Docker has neither the nvidia runtime nor a CDI device",
            "Run `nvidia-ctk runtime configure --runtime=docker` and restart Docker.",
        )


def _cdi(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """CDI files that name libraries of another driver than the one that runs."""
    driver, docker = facts["gpu"].get("driver_version"), facts["docker"]
    for path, made_for in docker.get("cdi", {}).items():
        if driver and made_for and made_for != driver:
            yield Finding(
                "cdi-stale",
                # The runtime finds the libraries by itself.
                "warning" if "nvidia" in docker["runtimes"] else "error",
                plan.name,
                f"{path} was made for driver {made_for}, and {driver} runs",
                f"Run `sudo nvidia-ctk cdi generate --output={path}` there.",
            )


def _ports(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    owners = {port: target.name for target in plan.targets for port in target.ports}
    if plan.settings.webui.enabled:
        owners[plan.settings.webui.port] = "webui"
    ours = {*unit_names(plan.targets), f"{plan.settings.webui.unit}.service"}
    for text, listener in facts["listeners"].items():
        port = int(text)
        # A container's process lives in Docker's cgroup, not in its unit's; once this host has
        # been deployed to, such a port is taken by an engine of ours.
        in_docker = facts["units_held"] and "docker" in listener["unit"]
        if in_docker or ours.intersection(listener["unit"].split("/")):
            continue
        yield Finding(
            "port-taken",
            "error",
            plan.name,
            f"port {port} of {owners.get(port, 'this stack')} is taken by "
            f"{listener['process']} ({listener['unit'] or 'no unit'})",
            "Stop that process, or set another port in targets or webui.",
        )


def _disks(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Bytes still to come, by device, against what is free there."""
    settings, disks = plan.settings, facts["disks"]
    need: dict[Any, float] = {}
    names: dict[Any, str] = {}

    def add(path: str, size: float) -> None:
        device = disks[path]["device"]
        need[device] = need.get(device, 0) + size
        names.setdefault(device, path)

    for model in models_of(plan):
        add(settings.paths.models, missing_bytes(pins.models[model].files, facts["models"][model]))
    held = facts["docker"].get("images", [])
    docker_root = facts["docker"].get("root") or "/var/lib"
    for name in images_of(plan):
        if pull_reference(name, pins.images[name]) not in held:
            add(docker_root, UNPACKED * pins.images[name].size)
            add(IMAGE_STORE, pins.images[name].size)
    if ENGINE in facts["lacking"]:
        # The wheels are kept beside what is made of them.
        wheels = [*locked(settings, pins, ENGINE), *locked(settings, pins, BUILD)]
        compiled = precompiled(settings, pins)
        add(settings.paths.engines, sum(wheel.size or 0 for wheel in wheels))
        add(settings.paths.engines, compiled.size if compiled else 0)
        add(settings.paths.engines, settings.engine.disk_gib * GIB)
    for device, size in need.items():
        free = next(disk["free"] for disk in disks.values() if disk["device"] == device)
        wanted = size + settings.expected.free_disk_gib * GIB
        if size and free < wanted:
            yield Finding(
                "disk-short",
                "error",
                plan.name,
                f"{names[device]}: {size / GIB:.1f} GiB to fetch, {free / GIB:.1f} GiB "
                f"free, {settings.expected.free_disk_gib:g} GiB must stay free",
                "Free space (docker image prune, old models), or bind fewer targets.",
            )
