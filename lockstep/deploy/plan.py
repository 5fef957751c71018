"""The content of a deploy for each host, with its findings; contacts no host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.checkpoints.known_checkpoints import KnownCheckpoint
from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, split_waived
from lockstep.fit import catalogue as catalogues
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import Fit, checkpoint_of, fit
from lockstep.fit.recipe_checks import check
from lockstep.inventory import inventory_file
from lockstep.inventory.bound_models import BoundModel
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile
from lockstep.lock.experts import with_known_experts
from lockstep.lock.packages import ENGINE, fork_version
from lockstep.lock.pins import Pins
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.core.schema import values_of
from lockstep.onhost.fetch import login_in_url
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.units.backup_unit import one_disk_finding


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """One model on one host.

    Attributes:
        name: The name that `switch.sh` accepts.
        recipe: The recipe's name.
        fallback: The name of its fallback recipe, or None.
        unit: The systemd unit.
        address: The address of the API, "127.0.0.1:30001"; "at rank 0" on other cluster members.
        cluster: Name of the cluster that serves it together, None: this host alone.
        rank: The rank of this host in the cluster.
        settings: Its other keys that differ from their default.
        fit: Its fit, or None if its command line cannot be built.
    """

    name: str
    recipe: str
    fallback: str | None
    unit: str
    address: str
    fit: Fit | None
    cluster: str | None = None
    rank: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Download:
    """One download: its name, its source, and its bytes (None: known only to the source)."""

    name: str
    source: str
    size: int | None


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """One host.

    Attributes:
        name: The host.
        models: The models that it would serve, one at a time.
        downloads: Everything that its models need.
        from_peers: The downloads that an earlier host of the inventory has already.
    """

    name: str
    models: tuple[PlannedModel, ...]
    downloads: tuple[Download, ...]
    from_peers: tuple[Download, ...]


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """The whole inventory: hosts, findings that stand, findings that the inventory waives."""

    hosts: tuple[PlannedHost, ...]
    findings: tuple[Finding, ...]
    waived_findings: tuple[Finding, ...]


def make(path: Path, catalogue_folder: Path = catalogues.FOLDER) -> DeployPlan:
    """Return the plan for an inventory file.

    Raises:
        LockstepError: the inventory, a recipe, the catalogue or the lock is wrong.
    """
    hosts = inventory_file.load(path)
    record = lockfile.load(inventory_file.lock_path(path, hosts))
    return plan_hosts(hosts, record, catalogues.load(catalogue_folder))


def plan_hosts(hosts: Sequence[HostPlan], record: Pins, knowledge: Catalogue) -> DeployPlan:
    """Return the plan for hosts that are already read, by the lock and the catalogue."""
    planned_hosts: list[PlannedHost] = []
    standing: list[Finding] = []
    waived_findings: list[Finding] = []
    earlier: set[str] = set()
    for host in (with_known_experts(host_plan, record) for host_plan in hosts):
        terms = replace(
            knowledge,
            accepted_licences=knowledge.accepted_licences | set(host.settings.accept_licences),
        )
        findings = [item for model in host.models for item in _findings(host, model, record, terms)]
        # Preflight knows the disks of the host's folders.
        findings += [item] if (item := one_disk_finding(host)) else []
        stands, set_aside = split_waived(findings, host.settings.waive)
        standing += stands
        waived_findings += set_aside
        downloads = tuple(_downloads(host, record, knowledge))
        planned_hosts.append(
            PlannedHost(
                host.name,
                tuple(_model(host, model, record, knowledge) for model in host.models),
                downloads,
                tuple(item for item in downloads if item.name in earlier),
            )
        )
        earlier |= {item.name for item in downloads}
    return DeployPlan(
        tuple(planned_hosts), tuple(_join_hosts(standing)), tuple(_join_hosts(waived_findings))
    )


def _pinned_recipe(recipe: Recipe, model: BoundModel, record: Pins) -> Recipe:
    """Return the recipe with the image that would run: by digest if the record has one."""
    reference = model.image_of(recipe) or ""
    pin = record.images.get(reference)
    if pin is not None and "@" not in reference:
        reference = f"{reference}@{pin.digest}"
    return replace(recipe, container=reference)


def _findings(
    host: HostPlan, model: BoundModel, record: Pins, knowledge: Catalogue
) -> Iterator[Finding]:
    for recipe in model.recipes:
        version = None if recipe.in_container else _venv_version(host, record)
        pinned_recipe = _pinned_recipe(recipe, model, record)
        image = record.images.get(model.image_of(recipe) or "")
        findings = check(
            pinned_recipe,
            knowledge,
            overrides=model.overrides(recipe),
            machine=catalogues.machine_of(host.settings),
            minimums=model.data.memory_minimum.ends,
            engine_version=version,
            hosts=len(model.group.members) if model.group else 1,
            silent_reason=image.unanswered if image else "",
            entrypoint=image.entrypoint if image else None,
        )
        for item in findings:
            yield replace(item, subject=f"{host.name} {model.name} ({item.subject})")


def _venv_version(host: HostPlan, record: Pins) -> str | None:
    """Return the vLLM version of the host's venv (of a fork, its base); None while not locked."""
    if host.settings.engine.git is not None:
        return fork_version(host.settings, record)
    pin = record.python.get(ENGINE)
    if pin is not None and "vllm" in pin.versions:
        return pin.versions["vllm"]
    release = host.settings.engine.release or ""
    return release[6:] if release.startswith("vllm==") else None


def _join_hosts(findings: Sequence[Finding]) -> list[Finding]:
    """Return one finding for all hosts that share it: "spark1, spark2 qwen (recipe)"."""
    hosts: dict[tuple[str, Finding], list[str]] = {}
    for item in findings:
        host, subject = item.subject.split(" ", 1)
        names = hosts.setdefault((subject, replace(item, subject=subject)), [])
        if host not in names:
            names.append(host)
    return [
        replace(item, subject=f"{', '.join(names)}: {subject}")
        for (subject, item), names in hosts.items()
    ]


def _model(host: HostPlan, model: BoundModel, record: Pins, knowledge: Catalogue) -> PlannedModel:
    recipe = _pinned_recipe(model.recipe, model, record)
    try:
        answer = fit(
            recipe,
            knowledge.knowledge,
            machine=catalogues.machine_of(host.settings),
            asked=model.serving(model.recipe),
            minimums=model.data.memory_minimum.ends,
        )
    except RecipeError:
        answer = None
    return PlannedModel(
        name=model.name,
        recipe=recipe.name,
        fallback=model.fallback.name if model.fallback else None,
        unit=model.unit,
        address=address_with_port(model.data.bind, model.port) if model.answers else "at rank 0",
        fit=answer,
        cluster=model.group.name if model.group else None,
        rank=model.group.rank if model.group else None,
        settings=values_of(model.data.settings_alone),
    )


def _downloads(host: HostPlan, record: Pins, knowledge: Catalogue) -> Iterator[Download]:
    """Yield weights, drafts and images of every model, each once."""
    sizes: Mapping[str, int] = {name: pin.size for name, pin in record.checkpoints.items()}
    hub, _ = login_in_url.split_off_login(host.settings.sources.hub)
    by_name: dict[str, Download] = {}
    for model in host.models:
        for recipe in model.recipes:
            draft = draft_of(recipe)
            weights = {recipe.repository: checkpoint_of(recipe, knowledge.knowledge)}
            weights |= {draft.model: knowledge.knowledge.checkpoint(draft.model)} if draft else {}
            for name, checkpoint in weights.items():
                if not name.startswith("/"):
                    size = sizes.get(name, _stated_bytes(checkpoint))
                    by_name[name] = Download(name, hub, size)
            if image := model.image_of(recipe):
                pin = record.images.get(image)
                by_name[image] = Download(image, "registry", pin.size if pin else None)
    yield from by_name.values()


def _stated_bytes(model: KnownCheckpoint) -> int | None:
    return int(float(model.weights_gb.value) * 1e9) if model.weights_gb else None
