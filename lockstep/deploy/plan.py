"""The content of a deploy for each host, with its findings; contacts no host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, split_waived
from lockstep.fit import catalogue as catalogues
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import Fit, fit, model_of
from lockstep.fit.recipe_checks import check
from lockstep.inventory import inventory_file
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile
from lockstep.lock.experts import informed
from lockstep.lock.packages import ENGINE, fork_version
from lockstep.lock.pins import Pins
from lockstep.models.known_models import Model
from lockstep.onhost.core.address import at
from lockstep.onhost.fetch import url_login
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving
from lockstep.units.backup_unit import one_disk_finding


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """One target on one host.

    Attributes:
        name: What `switch.sh` accepts.
        recipe: The recipe's name, and its fallback's.
        unit: The systemd unit.
        address: Where the API listens, "127.0.0.1:30001"; "at rank 0" on the others of a cluster.
        runs_in: Image reference, or "venv".
        cluster: Name of the cluster that serves it together, None: this host alone.
        rank: This host's place in it.
        fit: Whether it fits, None where its command line cannot be built.
    """

    name: str
    recipe: str
    fallback: str | None
    unit: str
    address: str
    runs_in: str
    fit: Fit | None
    cluster: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """One thing to fetch: what, from where, how many bytes (None: not known before it is asked)."""

    what: str
    source: str
    size: int | None


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """One host.

    Attributes:
        name: The host.
        targets: What it would serve, one at a time.
        downloads: Everything its targets need.
        from_peers: Those of them that an earlier host of the inventory has already.
    """

    name: str
    targets: tuple[PlannedTarget, ...]
    downloads: tuple[Download, ...]
    from_peers: tuple[Download, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole inventory: hosts, findings that stand, findings that the inventory waives."""

    hosts: tuple[PlannedHost, ...]
    findings: tuple[Finding, ...]
    waived: tuple[Finding, ...]


def make(path: Path, catalogue_folder: Path = catalogues.FOLDER) -> Plan:
    """The plan for an inventory file.

    Raises:
        LockstepError: the inventory, a recipe, the catalogue or the lock is wrong.
    """
    hosts = inventory_file.load(path)
    record = lockfile.load(inventory_file.lock_path(path, hosts))
    return plan_hosts(hosts, record, catalogues.load(catalogue_folder))


def plan_hosts(hosts: Sequence[HostPlan], record: Pins, known: Catalogue) -> Plan:
    """The plan for hosts that are already read, by the lock and the catalogue."""
    planned: list[PlannedHost] = []
    standing: list[Finding] = []
    waived: list[Finding] = []
    earlier: set[str] = set()
    for host in (informed(each, record) for each in hosts):
        terms = replace(known, accepted=known.accepted | set(host.settings.accept_licences))
        found = [item for target in host.targets for item in _findings(host, target, record, terms)]
        # Of folders on the host, preflight knows the disk.
        found += [item] if (item := one_disk_finding(host)) else []
        stands, set_aside = split_waived(found, host.settings.waive)
        standing += stands
        waived += set_aside
        downloads = tuple(_downloads(host, record, known))
        planned.append(
            PlannedHost(
                host.name,
                tuple(_target(host, target, record, known) for target in host.targets),
                downloads,
                tuple(item for item in downloads if item.what in earlier),
            )
        )
        earlier |= {item.what for item in downloads}
    return Plan(tuple(planned), tuple(_merged(standing)), tuple(_merged(waived)))


def _pinned(recipe: Recipe, target: BoundTarget, record: Pins) -> Recipe:
    """The recipe with the image that would run: by digest where the record holds one."""
    reference = target.image_of(recipe) or ""
    pin = record.images.get(reference)
    if pin is not None and "@" not in reference:
        reference = f"{reference}@{pin.digest}"
    return replace(recipe, container=reference)


def _findings(
    host: HostPlan, target: BoundTarget, record: Pins, known: Catalogue
) -> Iterator[Finding]:
    for recipe in target.recipes:
        version = None if recipe.in_container else _venv_version(host, record)
        pinned = _pinned(recipe, target, record)
        image = record.images.get(target.image_of(recipe) or "")
        found = check(
            pinned,
            known,
            overrides=target.overrides(recipe),
            machine=catalogues.machine_of(host.settings),
            floors=target.data.memory_floor.ends,
            engine_version=version,
            hosts=len(target.group.members) if target.group else 1,
            unanswered=image.unanswered if image else "",
            entrypoint=image.entrypoint if image else None,
        )
        for item in found:
            yield replace(item, subject=f"{host.name} {target.name} ({item.subject})")


def _venv_version(host: HostPlan, record: Pins) -> str | None:
    """The vLLM of the host's venv, of a fork what it is built as; None while that is not locked."""
    if host.settings.engine.git is not None:
        return fork_version(host.settings, record)
    pin = record.python.get(ENGINE)
    if pin is not None and "vllm" in pin.versions:
        return pin.versions["vllm"]
    release = host.settings.engine.release or ""
    return release[6:] if release.startswith("vllm==") else None


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for all hosts that share it: "spark1, spark2 qwen (recipe)"."""
    hosts: dict[tuple[str, Finding], list[str]] = {}
    for item in findings:
        host, rest = item.subject.split(" ", 1)
        names = hosts.setdefault((rest, replace(item, subject=rest)), [])
        if host not in names:
            names.append(host)
    return [
        replace(item, subject=f"{', '.join(names)}: {rest}")
        for (rest, item), names in hosts.items()
    ]


def _target(host: HostPlan, target: BoundTarget, record: Pins, known: Catalogue) -> PlannedTarget:
    recipe = _pinned(target.recipe, target, record)
    try:
        answer = fit(
            recipe,
            known.knowledge,
            machine=catalogues.machine_of(host.settings),
            asked=serving(recipe, target.overrides(recipe)),
            floors=target.data.memory_floor.ends,
        )
    except RecipeError:
        answer = None
    return PlannedTarget(
        name=target.name,
        recipe=recipe.name,
        fallback=target.fallback.name if target.fallback else None,
        unit=target.unit,
        address=at(target.data.bind, target.port) if target.answers else "at rank 0",
        runs_in=recipe.container or "venv",
        fit=answer,
        cluster=target.group.name if target.group else None,
        rank=target.group.rank if target.group else None,
    )


def _downloads(host: HostPlan, record: Pins, known: Catalogue) -> Iterator[Download]:
    """Weights, drafts and images of every target, each once."""
    sizes: Mapping[str, int] = {name: pin.size for name, pin in record.models.items()}
    hub, _ = url_login.apart(host.settings.sources.hub)
    named: dict[str, Download] = {}
    for target in host.targets:
        for recipe in target.recipes:
            draft = recipe.lockstep.draft
            weights = {recipe.repository: model_of(recipe, known.knowledge)}
            weights |= {draft.model: known.knowledge.model(draft.model)} if draft else {}
            for name, model in weights.items():
                if not name.startswith("/"):
                    size = sizes.get(name, _stated_bytes(model))
                    named[name] = Download(name, hub, size)
            if image := target.image_of(recipe):
                pin = record.images.get(image)
                named[image] = Download(image, "registry", pin.size if pin else None)
    yield from named.values()


def _stated_bytes(model: Model) -> int | None:
    return int(float(model.weights_gb.value) * 1e9) if model.weights_gb else None
