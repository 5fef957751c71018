"""The models of a host for its programs: their own dataclasses, written as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from lockstep.files.managed_file import API_KEY, CONFIGURATION, ManagedFile
from lockstep.inventory.cluster import ClusterMembers
from lockstep.inventory.settings import Minimum, Settings
from lockstep.onhost.core.config import HostConfig, Model
from lockstep.onhost.core.topology import Cluster, TopologyMember
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.sizing import read_back
from lockstep.units.model_variants import Variant

MODELS = f"{CONFIGURATION}/models.json"


def models_file(settings: Settings, variants: Sequence[Variant]) -> ManagedFile:
    """Return the file that `load_host` reads on the host."""
    text = json.dumps(asdict(host_configuration(settings, variants)), indent=2) + "\n"
    return ManagedFile(MODELS, text, check="json", stage="services")


def host_configuration(settings: Settings, variants: Sequence[Variant]) -> HostConfig:
    """Return a host's models and clusters as its own programs see them."""
    groups = [variant.model.group for variant in variants]
    return HostConfig(
        name=settings.name,
        models={variant.name: _model(variant) for variant in variants},
        webui_unit=f"{settings.webui.unit}.service",
        clusters={group.name: _cluster(settings, group) for group in groups if group},
        max_clock_mhz=settings.gpu.max_clock_mhz,
        boot=settings.boot,
    )


def _model(variant: Variant) -> Model:
    model, need, minimum = variant.model, variant.need, variant.minimum or Minimum()
    loading, serving = variant.minimums
    draft = draft_of(variant.recipe)
    engine = engine_of(variant.recipe)
    drafts = read_back(variant.recipe, variant.engine_argv).speculative
    return Model(
        name=variant.name,
        unit=f"{variant.unit}.service",
        url=variant.url if variant.reachable else "",
        served_name=variant.served_name,
        memory_gib=need.gib,
        start_timeout_s=model.data.start_timeout_s,
        recipe=variant.recipe.name,
        engine=engine.name,
        container=variant.unit if variant.image else None,
        image=variant.image,
        fallback=variant.fallback,
        api_key_file=API_KEY if model.open else None,
        engine_url=variant.engine_url if model.answers else None,
        weights=(variant.recipe.repository, *((draft.model,) if draft else ())),
        minimum_tok_s=minimum.decode_tok_s,
        minimum_share=minimum.share,
        minimum_sense=minimum.sense,
        sense=model.data.sense,
        tools=variant.tools,
        logprobs=engine.logprobs_drafting or not drafts,
        cluster=model.group.name if model.group else None,
        alike=variant.alike,
        not_at_boot=variant.recipe.lockstep.not_at_boot,
        memory_share=need.share,
        memory_of_total=need.of_total,
        memory_beside_gib=need.beside_gib,
        kind=variant.kind,
        load_free_gib=model.data.memory_minimum.free_gib,
        minimum_loading_gib=loading,
        minimum_serving_gib=serving,
    )


def _cluster(settings: Settings, group: ClusterMembers) -> Cluster:
    devices = settings.fabric.devices
    links = dict.fromkeys((*settings.fabric.interfaces, group.interface))
    return Cluster(
        name=group.name,
        rank=group.rank,
        port=group.data.port,
        members=tuple(TopologyMember(member.name, member.address) for member in group.members),
        links={name: devices.get(name, "") for name in links},
    )
