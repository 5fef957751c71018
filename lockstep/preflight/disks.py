"""Preflight: disk space for the downloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lockstep.core.findings import Finding
from lockstep.core.terminal import bytes_text
from lockstep.inventory.host import HostPlan, images_of, models_of
from lockstep.lock.image_reference import pull_reference
from lockstep.lock.packages import BUILD, locked, precompiled
from lockstep.lock.pins import Pins
from lockstep.preflight.ask import ENGINE
from lockstep.system.folders import IMAGE_STORE
from lockstep.units.backup_unit import one_disk_finding

GIB = 1024**3
# What an image takes on disk for each compressed byte that is pulled: an allowance of ours until it
# is measured on a Spark (2026-11-21).
UNPACKED = 3


def backups(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """That a lost disk takes the backups with it."""
    devices = {path: disk["device"] for path, disk in facts["disks"].items()}
    finding = one_disk_finding(plan, devices)
    if finding:
        yield replace(finding, subject=plan.name)


def findings(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Bytes still to come, by device, against what is free there."""
    settings, disks = plan.settings, facts["disks"]
    need: dict[Any, float] = {}
    names: dict[Any, str] = {}

    def add(path: str, size: float) -> None:
        device = disks[path]["device"]
        need[device] = need.get(device, 0) + size
        names.setdefault(device, path)

    for model in models_of(plan):
        add(settings.paths.hub_cache, pins.models[model].missing_bytes(facts["models"][model]))
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
        fetched = [*(wheel.size for wheel in wheels), compiled.size if compiled else 0]
        built = settings.engine.disk_gib * GIB
        add(settings.paths.engines, sum(size or 0 for size in fetched) + built)
    for device, size in need.items():
        free = next(disk["free"] for disk in disks.values() if disk["device"] == device)
        wanted = size + settings.expected.free_disk_gib * GIB
        if size and free < wanted:
            message = (
                f"{names[device]}: {bytes_text(int(size))} to fetch, {bytes_text(free)} free, "
                f"{bytes_text(int(settings.expected.free_disk_gib * GIB))} must stay free"
            )
            remedy = (
                "Free space (`lockstep gc` removes what no target needs), or bind fewer targets."
            )
            yield Finding("disk-short", "error", plan.name, message, remedy)
