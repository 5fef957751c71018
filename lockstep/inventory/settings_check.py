"""Contradictions between values of inventory data: names, folders and ports."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockstep.core.errors import InventoryError
from lockstep.inventory.cluster_check import check_clusters
from lockstep.inventory.logins import unused
from lockstep.inventory.monitoring import is_address
from lockstep.inventory.settings import Certificate, Paths, Settings
from lockstep.inventory.values import PATH, name_of_system

# Kernel setting → the most that leaves room for an engine: what the kernel keeps from processes.
# More than the memory there is, and the host dies at every boot.
_SYSCTL_MOST = {"vm.min_free_kbytes": 8 * 2**20}


def check_values(settings: Settings, where: Mapping[str, str], login: str | None = None) -> None:
    """Refuse values that contradict each other.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.
        login: The account that the deploy logs in as, None where it is not said.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    _check_account(settings, where.get("service_user", settings.name), login)
    _check_sysctls(settings.sysctls, where.get("sysctls", settings.name))
    _check_apart(settings.paths, where.get("paths", settings.name))
    _check_targets(settings, where.get("targets", settings.name))
    _check_engine(settings, where.get("engine", settings.name))
    _check_gateway(settings, where.get("gateway", settings.name))
    _check_monitoring(settings, where.get("monitoring", settings.name))
    _check_logins(settings, where.get("logins", settings.name))
    check_clusters(settings, where)


def _check_targets(settings: Settings, file: str) -> None:
    units: dict[str, str] = {}
    for name, target in settings.targets.items():
        key = f"targets.{name}"
        for inner, value in (("unit", target.unit), ("launcher", target.launcher)):
            if value is None:
                continue
            if value in units:
                raise InventoryError(
                    f"{key}.{inner} is used twice",
                    where=file,
                    found=f"{value!r}, also in targets.{units[value]}",
                    remedy="Give each target its own.",
                )
            units[value] = name
        if target.launcher is not None:
            _check_script(f"{key}.launcher", target.launcher, settings.paths, file)
        for index, script in enumerate(target.scripts):
            _check_script(f"{key}.scripts[{index}]", script, settings.paths, file)
    if settings.webui.unit in units:
        raise InventoryError(
            "webui.unit is also the unit of a target", where=file, found=repr(settings.webui.unit)
        )


def _check_account(settings: Settings, file: str, login: str | None) -> None:
    people = {name: key for key in ("operators", "docker_users") for name in getattr(settings, key)}
    if login is not None:
        people[login] = "ssh_user"
    user = settings.service_user
    owner = f"{people[user]} has it too" if user in people else ""
    if name_of_system(user):
        owner = "it is an account or a group of the system"
    if owner:
        raise InventoryError(
            "service_user is not an account of its own",
            where=file,
            found=f"{user!r}: {owner}",
            allowed="a name that nobody else has; the deploy makes the account, without a login",
            remedy='Remove the key: the default is "lockstep".',
        )


def _check_gateway(settings: Settings, file: str) -> None:
    """Refuse an address for other machines without TLS that nobody asked for, and idle keys."""
    gateway = settings.gateway
    if gateway.open and gateway.tls is None and not gateway.plain:
        raise InventoryError(
            "gateway.bind is open to other machines without TLS, so that keys could be read",
            where=file,
            found=repr(gateway.bind),
            remedy='Set gateway.tls ("own", "tailscale", or the paths of your certificate), or '
            "accept it on a network of yours alone: gateway.plain = True.",
        )
    if gateway.tls is not None and gateway.plain:
        raise InventoryError(
            "gateway.plain and gateway.tls contradict each other",
            where=file,
            found="both are set",
            remedy="Keep one of them.",
        )
    for key in ("tls", "plain"):
        if getattr(gateway, key) and not gateway.open:
            raise InventoryError(
                f"gateway.{key} concerns other machines, which do not reach gateway.bind",
                where=file,
                found=repr(gateway.bind),
                remedy=f'Set gateway.bind ("0.0.0.0"), or remove gateway.{key}.',
            )
    if isinstance(gateway.tls, Certificate):
        kinds = {isinstance(part, str) for part in (gateway.tls.certificate, gateway.tls.key)}
        if len(kinds) > 1:
            raise InventoryError(
                "gateway.tls has one half on the host and one on your machine",
                where=file,
                remedy="Name both by their full path on the host, or both by a command or a file "
                "of your machine.",
            )
    if gateway.tls == "tailscale" and not any(
        name.lower().endswith(".ts.net") for name in (settings.name, *gateway.names)
    ):
        raise InventoryError(
            "Tailscale gives certificates for names of its own alone",
            where=file,
            found=", ".join((settings.name, *gateway.names)),
            remedy="Add the host's to gateway.names, as `tailscale status --json` shows it "
            "(Self.DNSName: spark-1.tail1234.ts.net).",
        )
    if gateway.local_keys and settings.webui.enabled:
        raise InventoryError(
            "gateway.local_keys asks for a key on loopback, and Open WebUI has none",
            where=file,
            remedy="Set webui.enabled to False, or remove gateway.local_keys.",
        )


def _check_monitoring(settings: Settings, file: str) -> None:
    monitoring = settings.monitoring
    if monitoring.bind == "fabric" and not is_address(settings.fabric_address):
        raise InventoryError(
            'monitoring.bind is "fabric", and fabric_address is no IP address',
            where=file,
            found=f"fabric_address {settings.fabric_address!r}",
            remedy="Give the host its own address on the link between the Sparks, or remove "
            "monitoring.bind.",
        )
    if monitoring.keeps and settings.gateway.local_keys and monitoring.gateway_key is None:
        raise InventoryError(
            "gateway.local_keys asks Prometheus for a key too",
            where=file,
            remedy="Put a key for it into a file on the host (`lockstep gateway keys`), and name "
            "that file in monitoring.gateway_key.",
        )


def _check_sysctls(sysctls: Mapping[str, str], file: str) -> None:
    for name, value in sysctls.items():
        most = _SYSCTL_MOST.get(name.replace("/", "."))
        if most is not None and value.isdecimal() and int(value) > most:
            raise InventoryError(
                f"sysctls.{name} takes the memory that the engines need",
                where=file,
                found=value,
                allowed=f"at most {most}",
            )


def _check_apart(paths: Paths, file: str) -> None:
    """The service account owns two of these trees; nothing that others trust may lie there."""
    owned = {"paths.engines": paths.engines, "paths.models": paths.hub_cache}
    places = {key: getattr(paths, key.removeprefix("paths.")) for key in (*owned, "paths.scripts")}
    for key, path in places.items():
        for other, tree in owned.items():
            if key != other and f"{path}/".startswith(f"{tree}/"):
                raise InventoryError(
                    f"{key} lies in a folder that the engines' account owns",
                    where=file,
                    found=f"{path!r} in {tree!r} of {other}",
                    remedy="Give each of paths.scripts, paths.models and paths.engines a folder of "
                    "its own, none in another.",
                )


def _check_script(key: str, path: str, paths: Paths, file: str) -> None:
    folders = (f"{paths.scripts}/llm", f"{paths.scripts}/vllm")
    if not path.startswith("/"):
        raise InventoryError(f"{key} needs a full path", where=file, found=repr(path)[:80])
    inside = path.startswith(f"{paths.scripts}/") and re.fullmatch(PATH, path)
    if not inside or path in folders:
        raise InventoryError(
            f"{key} is not a file under paths.scripts",
            where=file,
            found=repr(path)[:80],
            allowed=f"{folders[0]}/NAME.sh",
            remedy="The deploy replaces this file. Move it there, or set paths.scripts.",
        )


def _check_logins(settings: Settings, file: str) -> None:
    if idle := unused(settings):
        raise InventoryError(
            "logins names a server that no address of sources or proxy is at",
            where=file,
            found=", ".join(idle),
            remedy="Write it as the address begins, without the login: https://HOST:PORT.",
        )


def _check_engine(settings: Settings, file: str) -> None:
    engine = settings.engine
    if engine.git is not None and engine.release is not None:
        raise InventoryError(
            "engine.git and engine.release name two vLLMs",
            where=file,
            found=f"{engine.git.rpartition('@')[2]!r} and {engine.release!r}",
            remedy="Keep one of them.",
        )
