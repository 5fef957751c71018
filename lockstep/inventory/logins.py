"""Logins at the servers of `sources` and `proxy`, put into addresses where a run needs them.

Until then an address is as the inventory has it, so a command that only reads asks for no secret.
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
    """Return the host with logins in its addresses; the secrets are read now."""
    settings = plan.settings
    if not settings.logins:
        return plan
    login_by_server = {
        server: _login(secret.read(source, key=f"logins[{server!r}]", where=plan.name))
        for server, source in settings.logins.items()
    }
    sources, proxy = (
        _with(settings.sources, login_by_server),
        _with(settings.proxy, login_by_server),
    )
    return replace(plan, settings=replace(settings, sources=sources, proxy=proxy))


def unused_logins(settings: Settings) -> list[str]:
    """Return the servers of `logins` that no address names."""
    sources, proxy = settings.sources, settings.proxy
    return [
        server
        for server in settings.logins
        if (_with(sources, {server: ""}), _with(proxy, {server: ""})) == (sources, proxy)
    ]


def _at(server: str) -> re.Pattern[str]:
    """Return a pattern for an address at a server without a login; sources.list has such too."""
    return re.compile(rf"(?<!\S){re.escape(server)}(?=[/\s]|$)")


def _login(text: str) -> str:
    user, colon, password = text.partition(":")
    return quote(user, safe="") + colon + quote(password, safe="")


def _with(of: Addresses, login_by_server: Mapping[str, str]) -> Addresses:
    def put(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: put(item) for name, item in value.items()}
        if isinstance(value, tuple):
            return tuple(put(item) for item in value)
        if isinstance(value, str):
            for server, login in login_by_server.items():
                scheme, mark, place = server.partition("://")
                # A quoted login has no backslash, which `sub` would interpret.
                value = _at(server).sub(f"{scheme}{mark}{login}@{place}", value)
        return value

    return replace(of, **{field.name: put(getattr(of, field.name)) for field in fields(of)})
