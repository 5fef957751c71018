"""Addresses in inventory data: which are none, and where a login has no place."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from lockstep.errors import InventoryError
from lockstep.settings import Sources

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
