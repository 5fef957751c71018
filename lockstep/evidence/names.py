"""Words that name the owner's machines, people and networks, by the inventory and by the hosts."""

from __future__ import annotations

import getpass
import re
import socket
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from lockstep.evidence.scrub import KnownWords
from lockstep.fleet.hosts import Host
from lockstep.onhost.engines import ENGINES

# Words of the page itself. As names they tell nothing about anybody, and without them the page is
# unreadable. The name of a folder under /home is always left out.
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
    """Return the label of a host by its place in the inventory: spark-A for the first."""
    letters = string.ascii_uppercase
    return f"spark-{letters[number] if number < len(letters) else number + 1}"


def known_words(every: Sequence[Host], own_names: Mapping[str, Mapping[str, Any]]) -> KnownWords:
    """Return the private words with their replacements.

    Args:
        every: Every host of the inventory, asked or not.
        own_names: The names that each answering host gives of itself.
    """
    hosts: dict[str, str] = {}
    words: dict[str, str] = {}
    for number, host in enumerate(every):
        own = own_names.get(host.name, {})
        names = [host.name.removeprefix("@ssh/"), host.data.get("ssh_hostname")]
        for name in _host_names([*names, *own.get("hosts", [])[:1]], short=True):
            hosts.setdefault(name, host_label(number))
    local_names = [socket.gethostname()]
    other_names = [name for own in own_names.values() for name in own.get("hosts", [])]
    for name in _host_names([*local_names, *other_names, *_servers(every)]):
        hosts.setdefault(name, "[host]")
    for number, person in enumerate(_people(every, own_names.values()), 1):
        words |= {name: f"account-{number}" for name in person if name not in words}
    for own in own_names.values():
        domains = [name.strip(".") for name in own.get("domains", [])]
        words |= {name: "[host]" for name in domains if "." in name or _private(name)}
        serials = [text.strip() for text in own.get("serials", [])]
        # Firmware without a serial number says "0", "None" or "Not Specified".
        words |= {text: "[serial]" for text in serials if _FIRMWARE.fullmatch(text)}
    return KnownWords(hosts, words)


def _private(name: str) -> bool:
    return len(name) > 1 and name.lower() not in _COMMON and not name.startswith("@")


def _host_names(names: Iterable[str | None], *, short: bool = False) -> Iterator[str]:
    """Yield names as given; with `short`, also without their domain."""
    for name in filter(None, names):
        plain = name.strip(".")
        address = ":" in plain or plain.replace(".", "").isdigit()
        for spelling in (plain, plain.partition(".")[0]) if short and not address else (plain,):
            local = spelling.lower().startswith(("ip6-", "localhost", "127.", "::"))
            if _private(spelling) and not local:
                yield spelling


def _servers(every: Sequence[Host]) -> Iterator[str]:
    """Yield the hosts of the proxy, and of mirrors in the owner's network."""
    for host in every:
        settings, sources = host.plan.settings, host.plan.settings.sources
        if settings.fabric_address:
            yield settings.fabric_address
        urls = (settings.proxy.http, settings.proxy.https, sources.python_index, sources.hub)
        for url in filter(None, (*urls, *sources.git.values())):
            yield urlsplit(url).hostname or ""
        for registry in (*sources.registries.values(), *sources.plain_registries):
            yield registry.partition("/")[0].partition(":")[0]


def _people(every: Sequence[Host], own_names: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return the names of each person, who may have an account on several hosts."""
    user_names = [getpass.getuser()]
    for host in every:
        settings = host.plan.settings
        user_names += [*settings.operators, *settings.docker_users, host.data.get("ssh_user") or ""]
    service_users = {host.plan.settings.service_user for host in every}
    accounts = [list(names) for own in own_names for names in own.get("accounts", [])]
    groups: list[list[str]] = []
    for names in [*([name] for name in user_names), *accounts]:
        names = [name for name in names if _private(name) and name not in service_users]
        group_of_person = next((group for group in groups if set(group) & set(names)), None)
        if group_of_person is None and names:
            groups.append(names)
        elif group_of_person is not None:
            group_of_person += [name for name in names if name not in group_of_person]
    return groups
