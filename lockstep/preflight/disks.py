"""Preflight: disk space for the downloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lockstep.core.findings import Finding
from lockstep.core.terminal import bytes_text
from lockstep.inventory.host import HostPlan, checkpoints_of, images_of
from lockstep.lock.image_reference import pull_reference
from lockstep.lock.packages import BUILD, locked_wheels, precompiled_pin
from lockstep.lock.pins import Pins
from lockstep.preflight.ask import ENGINE
from lockstep.system.folders import IMAGE_STORE
from lockstep.units.backup_unit import one_disk_finding

GIB = 1024**3
# Bytes on disk for each compressed byte of an image that is pulled: an allowance of ours until it
# is measured on a Spark (2026-11-21).
UNPACKED = 3


def backups(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield a warning that a lost disk takes the backups with it."""
    devices = {path: disk["device"] for path, disk in facts["disks"].items()}
    finding = one_disk_finding(plan, devices)
    if finding:
        yield replace(finding, subject=plan.name)


def findings(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each device with less free space than the bytes still to come."""
    settings, disks = plan.settings, facts["disks"]
    need: dict[Any, float] = {}
    names: dict[Any, str] = {}

    def add(path: str, size: float) -> None:
        device = disks[path]["device"]
        need[device] = need.get(device, 0) + size
        names.setdefault(device, path)

    for checkpoint in checkpoints_of(plan):
        add(
            settings.paths.hub_cache,
            pins.checkpoints[checkpoint].missing_bytes(facts["checkpoints"][checkpoint]),
        )
    present_images = facts["docker"].get("images", [])
    docker_root = facts["docker"].get("root") or "/var/lib"
    for name in images_of(plan):
        if pull_reference(name, pins.images[name]) not in present_images:
            add(docker_root, UNPACKED * pins.images[name].size)
            add(IMAGE_STORE, pins.images[name].size)
    if ENGINE in facts["lacking"]:
        # The wheels are kept beside the environments made of them.
        wheels = [*locked_wheels(settings, pins, ENGINE), *locked_wheels(settings, pins, BUILD)]
        build = precompiled_pin(settings, pins)
        download_sizes = [*(wheel.size for wheel in wheels), build.size if build else 0]
        build_bytes = settings.engine.disk_gib * GIB
        add(settings.paths.engines, sum(size or 0 for size in download_sizes) + build_bytes)
    for device, size in need.items():
        free = next(disk["free"] for disk in disks.values() if disk["device"] == device)
        wanted_bytes = size + settings.expected.free_disk_gib * GIB
        if size and free < wanted_bytes:
            message = (
                f"{names[device]}: {bytes_text(int(size))} to fetch, {bytes_text(free)} free, "
                f"{bytes_text(int(settings.expected.free_disk_gib * GIB))} must stay free"
            )
            remedy = "Free space (`lockstep gc` removes what no model needs), or bind fewer models."
            yield Finding("disk-short", "error", plan.name, message, remedy)
