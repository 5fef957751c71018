"""What no type can refuse in inventory data: names, ports, digests and addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from lockstep.address_check import (
    check_bind,
    check_fabric_address,
)
from lockstep.adopt import check_adopt
from lockstep.cluster_check import check_clusters
from lockstep.errors import InventoryError
from lockstep.fact_kinds import FACT_KINDS
from lockstep.findings import FATAL
from lockstep.name_check import check_names
from lockstep.number_check import check_numbers
from lockstep.place_check import check_places
from lockstep.settings import Firewall, Floor, Settings, TargetData
from lockstep.source_check import check_sources

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# A host's name reaches ssh's command line, files on hosts, and terminals.
_HOST = re.compile(r"[A-Za-z0-9@_:\[][A-Za-z0-9@_.:%/\[\]-]*")
# As `docker run` takes it after its options (distribution's reference grammar).
_IMAGE = re.compile(
    r"[A-Za-z0-9\[](?:[A-Za-z0-9._:\]-]*[A-Za-z0-9\]])?"
    r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
_SERVICE = re.compile(r"(?:tcp|udp)/(\d{1,5})")
_TARGET = re.compile(r"[a-z0-9][a-z0-9_-]*")
# Words that switch.sh itself takes.
RESERVED = frozenset({"none", "status", "log", "wait", "help"})


def check_values(settings: Settings, where: Mapping[str, str], login: str | None = None) -> None:
    """Refuse what no type can: names, digests and ports that contradict each other.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.
        login: The account that the deploy logs in as, None where it is not said.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    file = where.get("targets", settings.name)
    if not settings.targets:
        raise InventoryError("targets is empty", where=file, remedy="Bind at least one recipe.")
    _check_host(settings)
    check_names(settings, where, login)
    check_places(settings, where)
    check_numbers(settings, where)
    units: dict[str, str] = {}
    for name, target in settings.targets.items():
        if not _TARGET.fullmatch(name) or name in RESERVED:
            raise InventoryError(
                f"targets.{name} is not a name that switch.sh can take",
                where=file,
                allowed="lower-case letters, digits, '-' and '_'; not "
                + ", ".join(sorted(RESERVED)),
            )
        _check_target(name, target, file)
        for key, value in (("unit", target.unit), ("launcher", target.launcher)):
            if value is None:
                continue
            if value in units:
                raise InventoryError(
                    f"targets.{name}.{key} is used twice",
                    where=file,
                    found=f"{value!r}, also in targets.{units[value]}",
                    remedy="Give each target its own.",
                )
            units[value] = name
    check_image("webui.image", settings.webui.image, where.get("webui", file))
    check_bind("webui.bind", settings.webui.bind, where.get("webui", file))
    for pattern in settings.differs:
        if not any(pattern.startswith(f"{kind} ") for kind in FACT_KINDS):
            raise InventoryError(
                "differs names no kind of fact",
                where=where.get("differs", file),
                found=repr(pattern)[:60],
                allowed="KIND ITEM as `lockstep diff` shows it: " + ", ".join(sorted(FACT_KINDS)),
            )
    if fatal := sorted(FATAL.intersection(settings.waive)):
        raise InventoryError(
            f"waive names {fatal[0]!r}, which no deploy survives",
            where=where.get("waive", settings.name),
            allowed="codes of other findings, as plan and preflight show them",
            remedy="Remove it, and mend what the finding says.",
        )
    check_adopt(settings.adopt, where.get("adopt", file))
    _check_firewall(settings.firewall, where.get("firewall", file))
    check_fabric_address(settings.fabric_address, where.get("fabric_address", settings.name))
    check_sources(settings, where)
    check_clusters(settings, where)
    if settings.webui.unit in units:
        raise InventoryError(
            "webui.unit is also the unit of a target", where=file, found=repr(settings.webui.unit)
        )


def _check_host(settings: Settings) -> None:
    if not _HOST.fullmatch(settings.name):
        raise InventoryError(
            "a host's name is no name",
            where=settings.name,
            found=repr(settings.name)[:80],
            allowed="an address, a name of ~/.ssh/config, or @local",
        )
    if settings.login is not None and not settings.login.isprintable():
        raise InventoryError(
            "login holds a control character", where=settings.name, found=repr(settings.login)[:80]
        )


def _check_firewall(firewall: Firewall, file: str) -> None:
    if not firewall.ssh_ports:
        raise InventoryError(
            "firewall.ssh_ports is empty, which would lock you out", where=file, allowed="(22,)"
        )
    for index, port in enumerate(firewall.ssh_ports):
        if not 1 <= port <= 65535:
            raise InventoryError(
                f"firewall.ssh_ports[{index}] is not a port", where=file, found=str(port)
            )
    for index, entry in enumerate(firewall.open):
        found = _SERVICE.fullmatch(entry)
        if not found or not 1 <= int(found[1]) <= 65535:
            raise InventoryError(
                f"firewall.open[{index}] names no port",
                where=file,
                found=repr(entry)[:60],
                allowed='"tcp/PORT" or "udp/PORT"',
            )
    for index, peer in enumerate(firewall.peers):
        try:
            network = ipaddress.ip_network(peer)
        except ValueError as fault:
            raise InventoryError(
                f"firewall.peers[{index}] is not a network",
                where=file,
                found=repr(peer)[:60],
                allowed='an address ("10.0.0.2") or a network ("10.0.0.0/24")',
            ) from fault
        if network.prefixlen == 0:
            raise InventoryError(
                f"firewall.peers[{index}] is everybody",
                where=file,
                found=repr(peer),
                remedy="Name the Sparks' own link. firewall.enabled = False opens everything.",
            )


def _check_target(name: str, target: TargetData, file: str) -> None:
    check_bind(f"targets.{name}.bind", target.bind, file)
    if target.image is not None:
        check_image(f"targets.{name}.image", target.image, file)
    if target.floor is not None:
        _check_floor(f"targets.{name}.floor", target.floor, file)


def _check_floor(key: str, floor: Floor, file: str) -> None:
    if floor.decode_tok_s is None and floor.not_below is None:
        raise InventoryError(
            f"{key} demands nothing", where=file, allowed="decode_tok_s, not_below, or both"
        )
    if floor.decode_tok_s is not None and not 0 < floor.decode_tok_s < float("inf"):
        raise InventoryError(
            f"{key}.decode_tok_s is no speed",
            where=file,
            found=str(floor.decode_tok_s),
            allowed="tokens per second, more than 0",
        )
    share = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) ?%", floor.not_below or "100 %")
    if share is None or not 0 < float(share[1]) <= 100:
        raise InventoryError(
            f"{key}.not_below is no share of the accepted result",
            where=file,
            found=repr(floor.not_below),
            allowed='"90 %": more than 0, at most 100',
        )


def check_image(key: str, reference: str, file: str) -> None:
    """Refuse an image reference whose digest is not ``@sha256:`` and 64 hexadecimal digits."""
    name, _, digest = reference.partition("@")
    if name and not _IMAGE.fullmatch(name):
        raise InventoryError(
            f"{key} is not an image",
            where=file,
            found=repr(name)[:80],
            allowed="REPOSITORY:TAG or REPOSITORY@sha256:<64 hexadecimal digits>",
        )
    if not name or reference.count("@") > 1 or ("@" in reference and not _DIGEST.fullmatch(digest)):
        raise InventoryError(
            f"{key} has a digest that is not a digest" if name else f"{key} names no image",
            where=file,
            found=repr(digest or reference)[:80],
            allowed="REPOSITORY:TAG or REPOSITORY@sha256:<64 hexadecimal digits>",
            remedy="Write the digest of the image's manifest for this architecture, or a tag.",
        )
