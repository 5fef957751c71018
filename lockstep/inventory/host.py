"""One host of an inventory, with its data and its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lockstep.core.digest import digest
from lockstep.files.managed_file import ManagedFile
from lockstep.inventory.bound_models import BoundModel
from lockstep.inventory.cluster import ClusterMembers
from lockstep.inventory.pairing import Partners, Ring
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_address
from lockstep.onhost.access.certificate_authority import SUFFIXES
from lockstep.onhost.gateway.configuration import PeerGateway
from lockstep.recipes.draft import draft_of


@dataclass(frozen=True)
class Authority:
    """The signer of several hosts' gateway certificates, where `gateway.tls` is "own".

    Attributes:
        hosts: The hosts, as the inventory names and lists them; the first one makes it.
        names: Names of the hosts that are not private by themselves: it signs for these too.
    """

    hosts: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """The id of the authority, which changes when it is to sign for other names."""
        return digest(self.names, 8)


@dataclass(frozen=True)
class HostPlan:
    """A host, its data and its models.

    Attributes:
        name: Its name in pyinfra.
        settings: Its data, checked.
        models: Its models with their recipes.
        peers: The gateways of the hosts that `gateway.peers` names, once the inventory is joined.
        peer_hosts: Every host of the inventory that others know by a certificate, this one among
            them: members of clusters, and those whose gateways have peers.
        authority: Signer of its gateway's certificate, where that is an authority of ours.
        names: Names and addresses by which other machines reach it, for that certificate.
        ring: Its place among the monitored hosts of the inventory, once that is joined.
        backups: Hosts that keep its backups and whose it keeps, once the inventory is joined.
        extra_files: Files of the owner's own.
    """

    name: str
    settings: Settings
    models: tuple[BoundModel, ...]
    peers: tuple[PeerGateway, ...] = ()
    peer_hosts: tuple[str, ...] = ()
    authority: Authority | None = None
    names: tuple[str, ...] = ()
    ring: Ring = field(default_factory=Ring)
    backups: Partners = field(default_factory=Partners)
    extra_files: tuple[ManagedFile, ...] = ()

    @property
    def groups(self) -> tuple[ClusterMembers, ...]:
        """The host's part of each cluster that serves one of its models."""
        model_groups = (model.group for model in self.models if model.group)
        return tuple({group.name: group for group in model_groups}.values())


def checkpoints_of(plan: HostPlan) -> list[str]:
    """Return the Hub ids that the host's models need: checkpoints, drafts, borrowed files."""
    names: list[str] = []
    for recipe in (recipe for model in plan.models for recipe in model.recipes):
        draft = draft_of(recipe)
        names += [recipe.repository, *([draft.model] if draft else [])]
        names += [borrow.model for borrow in recipe.lockstep.borrow]
    # A full path is on the host already.
    return [name for name in dict.fromkeys(names) if not name.startswith("/")]


def images_of(plan: HostPlan) -> list[str]:
    """Return the image references, as asked for, that the host needs."""
    # A fallback may run from another image, unless the inventory names one for its engine.
    images = [model.image_of(recipe) for model in plan.models for recipe in model.recipes]
    if plan.settings.webui.enabled:
        images.append(plan.settings.webui.image)
    return [image for image in dict.fromkeys(images) if image]


def authority(named_blocks: Sequence[tuple[str, Sequence[str]]]) -> Authority:
    """Return the authority of some hosts, each with the names of its certificate."""
    every = {name for _, names in named_blocks for name in names if not _private(name)}
    return Authority(tuple(host for host, _ in named_blocks), tuple(sorted(every)))


def _private(name: str) -> bool:
    return name.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)) or is_address(name)
