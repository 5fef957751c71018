"""Logins at the servers of `sources` and `proxy`, put into their addresses where a run needs them.

Until then an address is as the inventory has it, so that what only looks asks for no secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import quote

from lockstep.inventory import secret
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Proxy, Settings, Sources

Addresses = TypeVar("Addresses", Sources, Proxy)


def logged_in(plan: HostPlan) -> HostPlan:
    """The host with the logins of its inventory in its addresses; they are asked for here."""
    settings = plan.settings
    if not settings.logins:
        return plan
    known = {
        server: _login(secret.read(source, key=f"logins[{server!r}]", where=plan.name))
        for server, source in settings.logins.items()
    }
    sources, proxy = _with(settings.sources, known), _with(settings.proxy, known)
    return replace(plan, settings=replace(settings, sources=sources, proxy=proxy))


def unused(settings: Settings) -> list[str]:
    """Servers of `logins` that no address names."""
    sources, proxy = settings.sources, settings.proxy
    return [
        server
        for server in settings.logins
        if (_with(sources, {server: ""}), _with(proxy, {server: ""})) == (sources, proxy)
    ]


def _at(server: str) -> re.Pattern[str]:
    """An address at a server, without a login; it may stand in a line of sources.list."""
    return re.compile(rf"(?<!\S){re.escape(server)}(?=[/\s]|$)")


def _login(text: str) -> str:
    user, colon, password = text.partition(":")
    return quote(user, safe="") + colon + quote(password, safe="")


def _with(of: Addresses, known: Mapping[str, str]) -> Addresses:
    def put(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: put(item) for name, item in value.items()}
        if isinstance(value, tuple):
            return tuple(put(item) for item in value)
        if isinstance(value, str):
            for server, login in known.items():
                scheme, mark, place = server.partition("://")
                # Quoted, a login has no backslash, which `sub` would read.
                value = _at(server).sub(f"{scheme}{mark}{login}@{place}", value)
        return value

    return replace(of, **{field.name: put(getattr(of, field.name)) for field in fields(of)})
