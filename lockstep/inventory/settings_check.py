"""Contradictions between values of one host's data; `cluster_join` compares the hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from lockstep.core.errors import LockstepError, gather_faults, raise_all
from lockstep.inventory.logins import unused_logins
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import FALLBACK, Certificate, HostPaths, ModelData, Settings
from lockstep.inventory.values import PATH, is_address, name_of_system
from lockstep.onhost.core.schema import SchemaFault, spelling_hint

# Kernel setting → the most that leaves room for an engine: the kernel keeps that much from
# processes. With more than the memory there is, the host dies at every boot.
_SYSCTL_MOST = {"vm.min_free_kbytes": 8 * 2**20}
# Least number of hosts in a cluster.
_LEAST = {"pair": 2, "switch": 2, "ring": 3}


def check_values(settings: Settings, where: Mapping[str, str], login: str | None = None) -> None:
    """Refuse values that contradict each other.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.
        login: The account that the deploy logs in as, None where that is not known.
    """
    checks = (
        ("service_user", _account(settings, login)),
        ("sysctls", _sysctls(settings)),
        ("paths", _paths(settings)),
        ("models", _models(settings)),
        ("models", _webui_unit(settings)),
        ("engine", _engine(settings)),
        ("gateway", _gateway(settings)),
        ("monitoring", _monitoring(settings)),
        ("backup", _backup(settings)),
        ("logins", _logins(settings)),
        ("clusters", _clusters(settings)),
        ("models", _cluster_models(settings)),
        ("fabric", _fabric(settings)),
    )
    faults: list[LockstepError] = []
    for key, refusals in checks:
        with gather_faults(faults):
            refuse(refusals, where.get(key, settings.name))
    raise_all(faults)


def _models(settings: Settings) -> Refusals:
    units: dict[str, str] = {}
    for name, model in settings.models.items():
        key = f"models.{name}"
        if model.fallback is not None and name + FALLBACK in settings.models:
            yield SchemaFault(
                f"{key}{FALLBACK} has the name of the fallback of {key}",
                remedy="Give the model another name.",
            )
        yield from _fallback(key, model)
        units_of = (("unit", unit) for unit in model.units)
        for inner, value in (*units_of, ("launcher", model.launcher)):
            if value is None:
                continue
            if value in units:
                yield SchemaFault(
                    f"{key}.{inner} is used twice",
                    found=f"{value!r}, also in models.{units[value]}",
                    remedy="Give each model its own.",
                )
            units[value] = name
        if model.launcher is not None:
            yield from _script(f"{key}.launcher", model.launcher, settings.paths)
        for index, script in enumerate(model.scripts):
            yield from _script(f"{key}.scripts[{index}]", script, settings.paths)


def _fallback(key: str, model: ModelData) -> Refusals:
    if model.fallback == model.recipe:
        # A recipe's overrides are found by the recipe, so both would be started alike.
        yield SchemaFault(
            f"{key}.fallback is the recipe itself, which would fail once more",
            found=repr(model.fallback),
            remedy="Name another recipe (a copy under another name may differ in a flag), or "
            f"remove {key}.fallback.",
        )
    elif model.fallback is None and model.fallback_overrides is not None:
        yield SchemaFault(
            f"{key}.fallback_overrides has no effect without {key}.fallback",
            found=", ".join(map(repr, model.fallback_overrides)) or "{}",
            remedy=f"Set {key}.fallback, or remove {key}.fallback_overrides.",
        )


def _webui_unit(settings: Settings) -> Refusals:
    unit = settings.webui.unit
    if any(unit in model.units for model in settings.models.values()):
        yield SchemaFault("webui.unit is also the unit of a model", found=repr(unit))


def _account(settings: Settings, login: str | None) -> Refusals:
    people = {name: key for key in ("operators", "docker_users") for name in getattr(settings, key)}
    if login is not None:
        people[login] = "ssh_user"
    user = settings.service_user
    owner = f"{people[user]} has it too" if user in people else ""
    if name_of_system(user):
        owner = "it is an account or a group of the system"
    if owner:
        yield SchemaFault(
            "service_user is not an account of its own",
            found=f"{user!r}: {owner}",
            allowed="a name that nobody else has; the deploy makes the account, without a login",
            remedy='Remove the key: the default is "lockstep".',
        )


def _gateway(settings: Settings) -> Refusals:
    """Refuse an address for other machines without TLS that nobody asked for, and idle keys."""
    gateway = settings.gateway
    if gateway.open and gateway.tls is None and not gateway.plain:
        yield SchemaFault(
            "gateway.bind is open to other machines without TLS, so that keys could be read",
            found=repr(gateway.bind),
            remedy='Set gateway.tls ("own", "tailscale", or the paths of your certificate), or '
            "accept it on a network of yours alone: gateway.plain = True.",
        )
    if gateway.tls is not None and gateway.plain:
        yield SchemaFault(
            "gateway.plain and gateway.tls contradict each other",
            found="both are set",
            remedy="Keep one of them.",
        )
    for key in ("tls", "plain"):
        if getattr(gateway, key) and not gateway.open:
            yield SchemaFault(
                f"gateway.{key} concerns other machines, which do not reach gateway.bind",
                found=repr(gateway.bind),
                remedy=f'Set gateway.bind ("0.0.0.0"), or remove gateway.{key}.',
            )
    tls = gateway.tls
    if isinstance(tls, Certificate) and isinstance(tls.certificate, str) != isinstance(
        tls.key, str
    ):
        yield SchemaFault(
            "gateway.tls has one half on the host and one on your machine",
            remedy="Name both by their full path on the host, or both by a command or a file of "
            "your machine.",
        )
    if gateway.tls == "tailscale" and not any(
        name.lower().endswith(".ts.net") for name in (settings.name, *gateway.names)
    ):
        yield SchemaFault(
            "Tailscale gives certificates for names of its own alone",
            found=", ".join((settings.name, *gateway.names)),
            remedy="Add the host's to gateway.names, as `tailscale status --json` shows it "
            "(Self.DNSName: spark-1.tail1234.ts.net).",
        )
    if gateway.local_keys and settings.webui.enabled:
        yield SchemaFault(
            "gateway.local_keys asks for a key on loopback, and Open WebUI has none",
            remedy="Set webui.enabled to False, or remove gateway.local_keys.",
        )


def _backup(settings: Settings) -> Refusals:
    backup = settings.backup
    if backup.to and not backup.enabled:
        yield SchemaFault(
            "backup.to has no effect without backup.enabled",
            found=", ".join(map(repr, backup.to)),
            remedy="Set backup.enabled to True, or remove backup.to.",
        )


def _monitoring(settings: Settings) -> Refusals:
    monitoring = settings.monitoring
    if monitoring.bind == "fabric" and not is_address(settings.fabric_address):
        yield SchemaFault(
            'monitoring.bind is "fabric", and fabric_address is no IP address',
            found=f"fabric_address {settings.fabric_address!r}",
            remedy="Give the host its own address on the link between the Sparks, or remove "
            "monitoring.bind.",
        )
    if monitoring.keeps and settings.gateway.local_keys and monitoring.gateway_key is None:
        yield SchemaFault(
            "gateway.local_keys asks Prometheus for a key too",
            remedy="Put a key for it into a file on the host (`lockstep key add NAME`), and name "
            "that file in monitoring.gateway_key.",
        )


def _sysctls(settings: Settings) -> Refusals:
    for name, value in settings.sysctls.items():
        most = _SYSCTL_MOST.get(name.replace("/", "."))
        if most is not None and value.isdecimal() and int(value) > most:
            yield SchemaFault(
                f"sysctls.{name} takes the memory that the engines need",
                found=value,
                allowed=f"at most {most}",
            )


def _paths(settings: Settings) -> Refusals:
    """Refuse folders inside the service account's two trees: others trust what lies there."""
    paths = settings.paths
    own_folders = {"paths.engines": paths.engines, "paths.models": paths.hub_cache}
    places = {
        key: getattr(paths, key.removeprefix("paths.")) for key in (*own_folders, "paths.scripts")
    }
    for key, path in places.items():
        for own_key, tree in own_folders.items():
            if key != own_key and f"{path}/".startswith(f"{tree}/"):
                yield SchemaFault(
                    f"{key} lies in a folder that the engines' account owns",
                    found=f"{path!r} in {tree!r} of {own_key}",
                    remedy="Give each of paths.scripts, paths.models and paths.engines a folder of "
                    "its own, none in another.",
                )


def _script(key: str, path: str, paths: HostPaths) -> Refusals:
    folders = (f"{paths.scripts}/llm", f"{paths.scripts}/vllm")
    if not path.startswith("/"):
        yield SchemaFault(f"{key} needs a full path", found=repr(path)[:80])
        return
    inside = path.startswith(f"{paths.scripts}/") and re.fullmatch(PATH, path)
    if not inside or path in folders:
        yield SchemaFault(
            f"{key} is not a file under paths.scripts",
            found=repr(path)[:80],
            allowed=f"{folders[0]}/NAME.sh",
            remedy="The deploy replaces this file. Move it there, or set paths.scripts.",
        )


def _logins(settings: Settings) -> Refusals:
    if idle := unused_logins(settings):
        yield SchemaFault(
            "logins names a server that no address of sources or proxy is at",
            found=", ".join(idle),
            remedy="Write it as the address begins, without the login: https://HOST:PORT.",
        )


def _engine(settings: Settings) -> Refusals:
    engine = settings.engine
    if engine.git is not None and engine.release is not None:
        yield SchemaFault(
            "engine.git and engine.release name two vLLMs",
            found=f"{engine.git.rpartition('@')[2]!r} and {engine.release!r}",
            remedy="Keep one of them.",
        )


def _clusters(settings: Settings) -> Refusals:
    """Refuse clusters that are not what their topology says."""
    for name, data in settings.clusters.items():
        count, least = len(data.hosts), _LEAST[data.topology]
        if count < least or (data.topology == "pair" and count > 2):
            yield SchemaFault(
                f"clusters.{name}.hosts is no {data.topology}",
                f"{count} hosts",
                "2 in a pair, 2 or more at a switch, 3 or more in a ring",
            )


def _cluster_models(settings: Settings) -> Refusals:
    """Refuse models of a cluster that does not exist, or that the host is no member of."""
    for name, model in settings.models.items():
        if model.cluster is None:
            continue
        if model.cluster not in settings.clusters:
            yield SchemaFault(
                f"models.{name}.cluster names an unknown cluster",
                found=repr(model.cluster),
                allowed=", ".join(settings.clusters) or "none: there is no key clusters",
                remedy=spelling_hint(model.cluster, settings.clusters),
            )
            continue
        members = settings.clusters[model.cluster].hosts
        if settings.name not in members:
            yield SchemaFault(
                f"models.{name} is of cluster {model.cluster}, and {settings.name} is no member",
                found=f"clusters.{model.cluster}.hosts: {', '.join(members)}",
                remedy="Bind it on the members only, or add this host to them.",
            )


def _fabric(settings: Settings) -> Refusals:
    """Refuse contradictions in the data of the fast link."""
    fabric = settings.fabric
    networks: dict[str, str] = {}
    for name, text in fabric.interfaces.items():
        network = str(ipaddress.ip_interface(text).network)
        if network in networks:
            yield SchemaFault(
                f"fabric.interfaces.{name} is in the network of {networks[network]}",
                found=network,
                remedy="Give each interface, both of a port too, a network of its own: in "
                "one network the kernel sends everything over the first.",
            )
        networks[network] = name
    for name, device in fabric.rdma.items():
        if name not in fabric.interfaces:
            yield SchemaFault(
                f"fabric.rdma.{name} names no interface of the link",
                found=repr(device),
                allowed="interfaces: " + (", ".join(fabric.interfaces) or "none"),
            )
    if fabric.netplan and not fabric.interfaces:
        yield SchemaFault(
            "fabric.netplan is on and fabric.interfaces is empty",
            remedy="List the interfaces with their addresses.",
        )
