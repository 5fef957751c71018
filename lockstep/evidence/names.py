"""Words that name the owner's machines, people and networks, by the inventory and by the hosts."""

from __future__ import annotations

import getpass
import re
import socket
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from lockstep.evidence.scrub import Known
from lockstep.fleet.hosts import Host
from lockstep.onhost.engines import ENGINES

# Words of the page itself. As names they tell nothing about anybody, and without them the page
# could not be read. A folder under /home is left out whatever its name is.
_COMMON = frozenset(
    (
        *("account", "address", "admin", "apt", "dgx", "docker", "engine", "gpu", "gx10", "home"),
        *("host", "id", "key", "localhost", "local", "lockstep", "memory", "none", "no", "nvidia"),
        *("root", "secret", "serial", "service", "spark", "system", "ubuntu", "user", "yes"),
        *ENGINES,
    )
)
_FIRMWARE = re.compile(r"(?=.*\d).{5,}")


def host_label(number: int) -> str:
    """spark-A for the first host of the inventory."""
    letters = string.ascii_uppercase
    return f"spark-{letters[number] if number < len(letters) else number + 1}"


def known(every: Sequence[Host], told: Mapping[str, Mapping[str, Any]]) -> Known:
    """The words, with what stands there instead.

    Args:
        every: Every host of the inventory, asked or not.
        told: Host → what it says of its own names, for those that answered.
    """
    hosts: dict[str, str] = {}
    words: dict[str, str] = {}
    for number, host in enumerate(every):
        own = told.get(host.name, {})
        given = [host.name.removeprefix("@ssh/"), host.data.get("ssh_hostname")]
        for name in _host_names([*given, *own.get("hosts", [])[:1]], short=True):
            hosts.setdefault(name, host_label(number))
    here = [socket.gethostname()]
    others = [name for own in told.values() for name in own.get("hosts", [])]
    for name in _host_names([*here, *others, *_servers(every)]):
        hosts.setdefault(name, "[host]")
    for number, person in enumerate(_people(every, told.values()), 1):
        words |= {name: f"account-{number}" for name in person if name not in words}
    for own in told.values():
        domains = [name.strip(".") for name in own.get("domains", [])]
        words |= {name: "[host]" for name in domains if "." in name or _private(name)}
        serials = [text.strip() for text in own.get("serials", [])]
        # Firmware that knows none says "0", "None" or "Not Specified".
        words |= {text: "[serial]" for text in serials if _FIRMWARE.fullmatch(text)}
    return Known(hosts, words)


def _private(name: str) -> bool:
    return len(name) > 1 and name.lower() not in _COMMON and not name.startswith("@")


def _host_names(names: Iterable[str | None], *, short: bool = False) -> Iterator[str]:
    """Names as given; with `short`, without their domain as well."""
    for name in filter(None, names):
        plain = name.strip(".")
        address = ":" in plain or plain.replace(".", "").isdigit()
        for each in (plain, plain.partition(".")[0]) if short and not address else (plain,):
            local = each.lower().startswith(("ip6-", "localhost", "127.", "::"))
            if _private(each) and not local:
                yield each


def _servers(every: Sequence[Host]) -> Iterator[str]:
    """Hosts of the proxy, and of mirrors in the owner's network."""
    for host in every:
        settings, sources = host.plan.settings, host.plan.settings.sources
        if settings.fabric_address:
            yield settings.fabric_address
        urls = (settings.proxy.http, settings.proxy.https, sources.python_index, sources.hub)
        for url in filter(None, (*urls, *sources.git.values())):
            yield urlsplit(url).hostname or ""
        for registry in (*sources.registries.values(), *sources.plain_registries):
            yield registry.partition("/")[0].partition(":")[0]


def _people(every: Sequence[Host], told: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Names of each person, who may have an account on several hosts."""
    given = [getpass.getuser()]
    for host in every:
        settings = host.plan.settings
        given += [*settings.operators, *settings.docker_users, host.data.get("ssh_user") or ""]
    ours = {host.plan.settings.service_user for host in every}
    accounts = [list(names) for own in told for names in own.get("accounts", [])]
    merged: list[list[str]] = []
    for names in [*([name] for name in given), *accounts]:
        names = [name for name in names if _private(name) and name not in ours]
        same = next((known for known in merged if set(known) & set(names)), None)
        if same is None and names:
            merged.append(names)
        elif same is not None:
            same += [name for name in names if name not in same]
    return merged
