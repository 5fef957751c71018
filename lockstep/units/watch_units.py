"""The units that watch over the hot model, cap the GPU's clock, and begin a model at boot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.files.managed_file import AGENT_UNIT, STATE, ManagedFile, command, unit_file
from lockstep.files.programs import modules_with_imports
from lockstep.files.templating import render_template
from lockstep.inventory.host import HostPlan
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.system.gpu_sensors import CAP_UNIT
from lockstep.units.agent_unit import addresses_of
from lockstep.units.model_variants import Variant
from lockstep.units.restart_key import with_restart_key

MEMORY_UNIT = "lockstep-memory.service"
_WEDGE, _SENSE = "lockstep-wedge", "lockstep-sense"
_WEDGE_EVERY_S = 60
# Two waits for a token (wedge.py: 120 s together) and a stop (at most 300 s), with room.
_WEDGE_LIMIT_S = 600
# The program asks once a day; most of the times the engine is busy, or was asked already.
_SENSE_EVERY_S = 3600
# Two looks, each of five answers.
_SENSE_LIMIT_S = 3600


def watch_units(plan: HostPlan, variants: Sequence[Variant]) -> Iterator[ManagedFile]:
    """Yield services and timers of one host; only `boot` starts a model at boot."""
    settings = plan.settings
    wedge = render_template(
        "units/wedge.service.j2", start=command("wedge"), limit_s=_WEDGE_LIMIT_S
    )
    yield unit_file(f"{_WEDGE}.service", wedge)
    yield unit_file(
        f"{_WEDGE}.timer", render_template("units/wedge.timer.j2", every_s=_WEDGE_EVERY_S)
    )
    if (clock := settings.gpu.max_clock_mhz) is not None:
        # Its stop lifts the cap.
        yield unit_file(CAP_UNIT, render_template("units/gpu-cap.service.j2", clock=clock))
    if any(model.answers and model.data.sense != "off" for model in plan.models):
        start = command("sense", "--rest")
        sense = render_template("units/sense.service.j2", start=start, limit_s=_SENSE_LIMIT_S)
        yield unit_file(f"{_SENSE}.service", sense)
        yield unit_file(
            f"{_SENSE}.timer", render_template("units/sense.timer.j2", every_s=_SENSE_EVERY_S)
        )
    if settings.boot != "none":
        boot = render_template(
            "units/boot.service.j2",
            start=command("boot"),
            agent=AGENT_UNIT if plan.groups else "",
            container=any(variant.image for variant in variants),
            folders=(settings.paths.hub_cache, settings.paths.engines, STATE),
            addresses=addresses_of(plan.groups),
        )
        yield unit_file(models_by_boot.UNIT, boot)
    # This unit ends an engine before the host runs out of memory.
    memory = with_restart_key(
        "units/memory.service.j2",
        contents=modules_with_imports("switching.memory_watch"),
        start=command("memory-minimum"),
    )
    yield unit_file(MEMORY_UNIT, memory)
