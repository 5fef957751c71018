"""What an operator types and what a unit runs: switch.sh, its aliases, launchers, programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    OPERATORS_GROUP,
    ManagedFile,
    Stage,
    command,
)
from lockstep.files.templating import render
from lockstep.inventory.cluster import Group
from lockstep.inventory.settings import Floor, Settings
from lockstep.onhost.core.need import Need
from lockstep.recipes.placeholders import engine_of
from lockstep.units.variants import Variant

TARGETS = f"{CONFIGURATION}/targets.json"
SUDOERS = "/etc/sudoers.d/lockstep"


def switch_path(settings: Settings) -> str:
    """Where switch.sh is."""
    return f"{settings.paths.scripts}/llm/switch.sh"


def scripts(settings: Settings, variants: Sequence[Variant]) -> tuple[ManagedFile, ...]:
    """switch.sh, one launcher per variant that has one, and the targets' alias scripts."""
    switch = switch_path(settings)
    found = [
        _script(
            switch,
            render(
                "scripts/switch.sh.j2",
                names=[variant.name for variant in variants],
                program=command("switch"),
            ),
        )
    ]
    for variant in variants:
        if variant.launcher:
            text = render("scripts/launch.sh.j2", variant=variant, switch=switch)
            found.append(_script(variant.launcher, text, "services"))
    for name, target in settings.targets.items():
        text = render("scripts/alias.sh.j2", name=name, switch=switch)
        found += [_script(path, text) for path in target.scripts]
    return tuple(found)


def _script(path: str, text: str, stage: Stage = "switch") -> ManagedFile:
    return ManagedFile(path, text, mode="0755", check="shell", stage=stage)


def targets_file(settings: Settings, variants: Sequence[Variant]) -> ManagedFile:
    """What the programs on the host know of its targets; `onhost/core/common.py` reads it."""
    data = {
        "host": settings.name,
        "webui_unit": f"{settings.webui.unit}.service",
        "clusters": {
            variant.target.group.name: _cluster(settings, variant.target.group)
            for variant in variants
            if variant.target.group
        },
        "targets": {
            variant.name: {
                "unit": f"{variant.unit}.service",
                "cluster": variant.target.group.name if variant.target.group else None,
                **({"alike": variant.alike} if variant.alike else {}),
                "url": variant.url if variant.reachable else None,
                "engine_url": variant.engine_url if variant.target.answers else None,
                "proxy_unit": f"{variant.proxy_unit}.service" if variant.proxy_unit else None,
                "api_key_file": API_KEY if variant.target.open else None,
                "model": variant.model_name,
                **_memory(variant.need),
                "start_timeout_s": variant.target.data.start_timeout_s,
                "recipe": variant.recipe.name,
                "engine": engine_of(variant.recipe).name,
                "container": variant.unit if variant.image else None,
                "image": variant.image,
                "fallback": variant.fallback,
                "weights": _weights(variant),
                **_floor(variant.floor),
            }
            for variant in variants
        },
    }
    text = json.dumps(data, indent=2) + "\n"
    return ManagedFile(TARGETS, text, check="json", stage="services")


def _cluster(settings: Settings, group: Group) -> dict[str, Any]:
    devices = settings.fabric.devices
    links = dict.fromkeys((*settings.fabric.interfaces, group.interface))
    return {
        "links": {name: devices.get(name, "") for name in links},
        "rank": group.rank,
        "port": group.data.port,
        "members": [{"name": member.name, "address": member.address} for member in group.members],
    }


def _memory(need: Need) -> dict[str, Any]:
    return {
        "memory_gib": round(need.gib, 2),
        "memory_share": need.share,
        "memory_of_total": need.of_total,
        "memory_beside_gib": need.beside_gib,
    }


def _floor(floor: Floor | None) -> dict[str, float]:
    found = {"floor_tok_s": floor.decode_tok_s, "floor_share": floor.share} if floor else {}
    return {key: value for key, value in found.items() if value is not None}


def _weights(variant: Variant) -> list[str]:
    draft = variant.recipe.lockstep.draft
    return [variant.recipe.repository, *([draft.model] if draft else [])]


def sudoers(variants: Sequence[Variant]) -> ManagedFile:
    """The right to switch, for the operators' group: whole argument lists and nothing else."""
    choices = [[variant.name] for variant in variants] + [["none"]]
    allowed = [[*choice, *flag] for choice in choices for flag in ([], ["--wait"], ["--dry"])]
    allowed += [["status"], ["status", "--json"]]
    allowed += [["log", variant.name, *flag] for variant in variants for flag in ([], ["-f"])]
    text = render(
        "system/sudoers.j2",
        group=OPERATORS_GROUP,
        commands=[" ".join(command("switch", *words)) for words in allowed],
    )
    return ManagedFile(SUDOERS, text, mode="0440", check="sudoers", stage="switch")
