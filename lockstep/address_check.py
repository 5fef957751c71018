"""Addresses in inventory data: which are none, and where a login has no place."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from lockstep.errors import InventoryError
from lockstep.settings import Sources

# As git-check-ref-format(1) has it, without what a shell or an option begins with.
_BRANCH = re.compile(r"(?!.*(?:\.\.|//|@\{|\.lock$))[A-Za-z0-9][A-Za-z0-9._/+#@-]*[A-Za-z0-9_+#-]?")
_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?(?P<path>/[A-Za-z0-9._/-]*)?"
)


def check_address(key: str, url: str | None, file: str) -> None:
    """Refuse the URL of a server that is none."""
    if url is not None and not re.fullmatch(r"(https?://[^/\s]+|file:///)\S*", url):
        raise InventoryError(
            f"{key} is not an address",
            where=file,
            # It may hold a password.
            found=repr(url.rpartition("@")[2])[:80],
            allowed="http://HOST…, https://HOST… or file:///…",
        )


def check_no_login(key: str, url: str | None, file: str) -> None:
    """Refuse a login in a repository's address, which the lock under version control names."""
    try:
        parts = urlsplit(url or "")
    except ValueError as fault:
        raise InventoryError(f"{key} is not an address", where=file, found=str(fault)) from fault
    login, _, server = parts.netloc.rpartition("@")
    if login and (":" in login or parts.scheme in ("http", "https")):
        place = f"{parts.scheme}://{server}/"
        raise InventoryError(
            f"{key} holds a login, which would stand in the lock file",
            where=file,
            found=f"{parts.scheme}://…@{server}{parts.path}",
            remedy="Write the address without it, and the login into sources.git, which is in no "
            f'lock: "{place}": "{parts.scheme}://USER:TOKEN@{server}/".',
        )


def check_registries(sources: Sources, file: str) -> None:
    """Refuse a registry that is none; a login has no place in a word of a command line."""
    asked = [(f"registries[{name!r}]", host, True) for name, host in sources.registries.items()]
    for number, host in enumerate(sources.plain_registries):
        asked.append((f"plain_registries[{number}]", host, False))
    for key, host, may_have_path in asked:
        found = _REGISTRY.fullmatch(host)
        if not found or (found["path"] and not may_have_path):
            raise InventoryError(
                f"sources.{key} is not a registry",
                where=file,
                # It may hold a password.
                found=repr(host.rpartition("@")[2])[:80],
                allowed="HOST, HOST:PORT" + (" or HOST:PORT/PATH" if may_have_path else ""),
                remedy="Without https:// and without a login.",
            )


def check_git(key: str, url: str | None, file: str) -> None:
    """Refuse a repository's address that git would take for an option or for a command to run."""
    if url is None:
        return
    # "ext::COMMAND" runs a command (gitremote-helpers(7)).
    if not re.fullmatch(r"(?![a-z0-9+-]+::)[A-Za-z0-9/][\x21-\x7e]*", url) or "'" in url:
        raise InventoryError(
            f"{key} is not a repository's address",
            where=file,
            # It may hold a password.
            found=repr(url.rpartition("@")[2])[:80],
            allowed="https://…, ssh://…, git://…, file:///…, USER@HOST:PATH or a full path",
        )


def check_branch(key: str, name: str, file: str) -> None:
    """Refuse a branch that git would not take as one."""
    if not _BRANCH.fullmatch(name):
        raise InventoryError(f"{key} is not a branch", where=file, found=repr(name)[:80])


def check_bind(key: str, address: str, file: str) -> None:
    """Refuse what nothing on a host can listen at."""
    try:
        usable = address == "localhost" or not ipaddress.ip_address(address).is_multicast
    except ValueError:
        usable = False
    if not usable or "%" in address:
        raise InventoryError(
            f"{key} is not an address to listen at",
            where=file,
            found=repr(address)[:60],
            allowed='"127.0.0.1", "0.0.0.0", "::" or another IP address of the host',
        )


def check_fabric_address(address: str | None, file: str) -> None:
    """Refuse an address at which the other Sparks cannot reach this one."""
    if address is None:
        return
    usable = re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*|::[0-9A-Fa-f:.]+", address) is not None
    try:
        found = ipaddress.ip_address(address)
        usable = not (found.is_loopback or found.is_unspecified or found.is_multicast)
    except ValueError:
        pass
    if not usable:
        raise InventoryError(
            "fabric_address is not an address",
            where=file,
            found=repr(address)[:80],
            allowed="an IP address of the host, or a name that the other Sparks know",
        )
