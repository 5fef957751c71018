"""What no type can refuse in inventory data: names, ports, digests and addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from lockstep.address_check import check_address, check_no_login, check_registries
from lockstep.adopt import check_adopt
from lockstep.cluster_check import check_clusters
from lockstep.drift.kinds import KINDS
from lockstep.errors import InventoryError
from lockstep.findings import FATAL
from lockstep.moving import is_commit
from lockstep.settings import Firewall, Floor, Settings, TargetData, VenvEngine

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SERVICE = re.compile(r"(?:tcp|udp)/(\d{1,5})")
_TARGET = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ADDRESSES = {
    "sources": ("python_index", "torch_index", "flashinfer_index", "vllm_wheels", "hub"),
    "proxy": ("http", "https"),
}
# Words that switch.sh itself takes.
RESERVED = frozenset({"none", "status", "log", "wait", "help"})


def check_values(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse what no type can: names, digests and ports that contradict each other.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    file = where.get("targets", settings.name)
    if not settings.targets:
        raise InventoryError("targets is empty", where=file, remedy="Bind at least one recipe.")
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
    _check_python(settings.python, where.get("python", file))
    for section, addresses in {"sources": settings.sources, "proxy": settings.proxy}.items():
        for key in _ADDRESSES[section]:
            check_address(f"{section}.{key}", getattr(addresses, key), where.get(section, file))
    check_registries(settings.sources, where.get("sources", file))
    for pattern in settings.differs:
        if not any(pattern.startswith(f"{kind} ") for kind in KINDS):
            raise InventoryError(
                "differs names no kind of fact",
                where=where.get("differs", file),
                found=repr(pattern)[:60],
                allowed="KIND ITEM as `lockstep diff` shows it: " + ", ".join(sorted(KINDS)),
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
    _check_copying(settings, where)
    _check_engine(settings.engine, where.get("engine", file))
    _check_precompiled(settings.engine, where.get("engine", file))
    check_clusters(settings, where)
    if settings.webui.unit in units:
        raise InventoryError(
            "webui.unit is also the unit of a target", where=file, found=repr(settings.webui.unit)
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
            ipaddress.ip_network(peer)
        except ValueError as fault:
            raise InventoryError(
                f"firewall.peers[{index}] is not a network",
                where=file,
                found=repr(peer)[:60],
                allowed='an address ("10.0.0.2") or a network ("10.0.0.0/24")',
            ) from fault


def _check_copying(settings: Settings, where: Mapping[str, str]) -> None:
    address, port = settings.fabric_address, settings.copy_port
    if address is not None and not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", address):
        raise InventoryError(
            "fabric_address is not an address",
            where=where.get("fabric_address", settings.name),
            found=repr(address)[:80],
            allowed="an IP address of the host, or a name that the other Sparks know",
        )
    if not 1 <= port <= 65535:
        file = where.get("copy_port", settings.name)
        raise InventoryError("copy_port is not a port", where=file, found=str(port))


def _check_engine(engine: VenvEngine, file: str) -> None:
    if engine.git is not None and engine.release is not None:
        raise InventoryError(
            "engine.git and engine.release name two vLLMs",
            where=file,
            found=f"{engine.git.rpartition('@')[2]!r} and {engine.release!r}",
            remedy="Keep one of them.",
        )
    for key in ("git", "transformers_git", "upstream"):
        check_no_login(f"engine.{key}", getattr(engine, key), file)


def _check_precompiled(engine: VenvEngine, file: str) -> None:
    commit, variant = engine.precompiled_commit, engine.precompiled_variant
    if commit is not None and not is_commit(commit):
        raise InventoryError(
            "engine.precompiled_commit is not a whole commit",
            where=file,
            found=repr(commit)[:60],
            allowed="40 hexadecimal digits, or None for the one at which the fork left upstream",
        )
    if not re.fullmatch(r"[a-z0-9]*", variant):
        raise InventoryError(
            "engine.precompiled_variant is not the name of a build",
            where=file,
            found=repr(variant)[:60],
            allowed='"cu130" or another folder of the server, "" for the usual one',
        )
    own = [name for name in engine.build_environment if "PRECOMPILED" in name]
    if own:
        raise InventoryError(
            f"engine.build_environment names {own[0]}, which the lock decides",
            where=file,
            remedy="Use engine.precompiled, precompiled_commit or precompiled_variant.",
        )


def _check_python(version: str, file: str) -> None:
    if not re.fullmatch(r"3\.\d+", version):
        raise InventoryError(
            "python is not a version of the interpreter",
            where=file,
            found=repr(version),
            allowed='"3.12", without a third number',
        )


def _check_target(name: str, target: TargetData, file: str) -> None:
    if not _UNIT.fullmatch(target.unit):
        raise InventoryError(
            f"targets.{name}.unit is not a unit name",
            where=file,
            found=repr(target.unit),
            allowed="letters, digits, '-' and '_', without '.service'",
        )
    for key, port in (("port", target.port), ("engine_port", target.engine_port)):
        if port is not None and not 1 <= port <= 65535:
            raise InventoryError(f"targets.{name}.{key} is not a port", where=file, found=str(port))
    if target.image is not None:
        check_image(f"targets.{name}.image", target.image, file)
    if target.floor is not None:
        _check_floor(f"targets.{name}.floor", target.floor, file)
    for script in (target.launcher, *target.scripts):
        if script is not None and not script.startswith("/"):
            raise InventoryError(
                f"targets.{name}: scripts need a full path", where=file, found=repr(script)
            )


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
    if not name or reference.count("@") > 1 or ("@" in reference and not _DIGEST.fullmatch(digest)):
        raise InventoryError(
            f"{key} has a digest that is not a digest" if name else f"{key} names no image",
            where=file,
            found=repr(digest or reference)[:80],
            allowed="REPOSITORY:TAG or REPOSITORY@sha256:<64 hexadecimal digits>",
            remedy="Write the digest of the image's manifest for this architecture, or a tag.",
        )
