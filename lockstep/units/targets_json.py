"""The targets of a host for its programs: their own dataclasses, written as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from lockstep.files.managed_file import API_KEY, CONFIGURATION, ManagedFile
from lockstep.inventory.cluster import Group
from lockstep.inventory.settings import Floor, Settings
from lockstep.onhost.core.config import Host, Target
from lockstep.onhost.core.topology import Cluster, Member
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.sizing import read_back
from lockstep.units.variants import Variant

TARGETS = f"{CONFIGURATION}/targets.json"


def targets_file(settings: Settings, variants: Sequence[Variant]) -> ManagedFile:
    """The file that `load_host` reads on the host."""
    text = json.dumps(asdict(known_to_host(settings, variants)), indent=2) + "\n"
    return ManagedFile(TARGETS, text, check="json", stage="services")


def known_to_host(settings: Settings, variants: Sequence[Variant]) -> Host:
    """A host's targets and clusters as its own programs see them."""
    groups = [variant.target.group for variant in variants]
    return Host(
        name=settings.name,
        targets={variant.name: _target(variant) for variant in variants},
        webui_unit=f"{settings.webui.unit}.service",
        clusters={group.name: _cluster(settings, group) for group in groups if group},
        max_clock_mhz=settings.gpu.max_clock_mhz,
        boot=settings.boot,
    )


def _target(variant: Variant) -> Target:
    target, need, floor = variant.target, variant.need, variant.floor or Floor()
    loading, serving = variant.floors
    draft = variant.recipe.lockstep.draft
    engine = engine_of(variant.recipe)
    drafts = read_back(variant.recipe, variant.engine_argv).speculative
    return Target(
        name=variant.name,
        unit=f"{variant.unit}.service",
        url=variant.url if variant.reachable else "",
        model=variant.model_name,
        memory_gib=need.gib,
        start_timeout_s=target.data.start_timeout_s,
        recipe=variant.recipe.name,
        engine=engine.name,
        container=variant.unit if variant.image else None,
        image=variant.image,
        fallback=variant.fallback,
        api_key_file=API_KEY if target.open else None,
        engine_url=variant.engine_url if target.answers else None,
        weights=(variant.recipe.repository, *((draft.model,) if draft else ())),
        floor_tok_s=floor.decode_tok_s,
        floor_share=floor.share,
        floor_sense=floor.sense,
        sense=target.data.sense,
        tools=variant.tools,
        logprobs=engine.logprobs_drafting or not drafts,
        identity=variant.identity,
        cluster=target.group.name if target.group else None,
        alike=variant.alike,
        not_at_boot=variant.recipe.lockstep.not_at_boot,
        memory_share=need.share,
        memory_of_total=need.of_total,
        memory_beside_gib=need.beside_gib,
        kind=variant.kind,
        load_free_gib=target.data.memory_floor.free_gib,
        floor_loading_gib=loading,
        floor_serving_gib=serving,
    )


def _cluster(settings: Settings, group: Group) -> Cluster:
    devices = settings.fabric.devices
    links = dict.fromkeys((*settings.fabric.interfaces, group.interface))
    return Cluster(
        name=group.name,
        rank=group.rank,
        port=group.data.port,
        members=tuple(Member(member.name, member.address) for member in group.members),
        links={name: devices.get(name, "") for name in links},
    )
