"""One host of an inventory, with its data and its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lockstep.core.digest import digest
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.cluster import Group
from lockstep.inventory.neighbours import Partners, Ring
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_address
from lockstep.onhost.access.authority import SUFFIXES
from lockstep.onhost.gateway.configuration import Peer


@dataclass(frozen=True)
class Authority:
    """What signs the certificates of several hosts' gateways, where `gateway.tls` is "own".

    Attributes:
        hosts: Those hosts, as the inventory names and lists them; the first one makes it.
        names: Names of theirs that are not private by themselves: it signs for these too.
    """

    hosts: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """Another one where it is to sign for other names."""
        return digest(self.names, 8)


@dataclass(frozen=True)
class HostPlan:
    """One host, its data and its targets.

    Attributes:
        name: As pyinfra names it.
        settings: Its data, checked.
        targets: Its targets with their recipes.
        peers: The gateways of the hosts that `gateway.peers` names, once the inventory is joined.
        gateways: Every host of the inventory whose gateway has peers, this one among them.
        authority: What signs its gateway's certificate, where that is to be an authority of ours.
        names: Names and addresses by which other machines reach it, for that certificate.
        ring: Its place among the monitored hosts of the inventory, once that is joined.
        backups: Who keeps its backups and whose it keeps, once the inventory is joined.
    """

    name: str
    settings: Settings
    targets: tuple[BoundTarget, ...]
    peers: tuple[Peer, ...] = ()
    gateways: tuple[str, ...] = ()
    authority: Authority | None = None
    names: tuple[str, ...] = ()
    ring: Ring = field(default_factory=Ring)
    backups: Partners = field(default_factory=Partners)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its part of each cluster that serves one of its targets."""
        found = (target.group for target in self.targets if target.group)
        return tuple({group.name: group for group in found}.values())


def models_of(plan: HostPlan) -> list[str]:
    """Hub ids that the host's targets need: models, drafts, borrowed files."""
    names: list[str] = []
    for recipe in (recipe for target in plan.targets for recipe in target.recipes):
        draft = recipe.lockstep.draft
        names += [recipe.repository, *([draft.model] if draft else [])]
        names += [borrow.model for borrow in recipe.lockstep.borrow]
    # A full path is on the host already.
    return [name for name in dict.fromkeys(names) if not name.startswith("/")]


def images_of(plan: HostPlan) -> list[str]:
    """Image references, as asked for, that the host needs."""
    # A fallback may run from another image, unless the inventory names one for its engine.
    images = [target.image_of(recipe) for target in plan.targets for recipe in target.recipes]
    if plan.settings.webui.enabled:
        images.append(plan.settings.webui.image)
    return [image for image in dict.fromkeys(images) if image]


def authority(named: Sequence[tuple[str, Sequence[str]]]) -> Authority:
    """The authority of some hosts, each with the names of its certificate."""
    every = {name for _, names in named for name in names if not _private(name)}
    return Authority(tuple(host for host, _ in named), tuple(sorted(every)))


def _private(name: str) -> bool:
    return name.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)) or is_address(name)
