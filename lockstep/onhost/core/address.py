"""Addresses in URLs and before ports: what has colons of its own stands in brackets (RFC 3986)."""

from __future__ import annotations

#: Addresses of sockets that listen at every one → the one at which the host itself reaches them.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def host(address: str) -> str:
    """A name or an address as URLs have it."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def at(address: str, port: int | str | None) -> str:
    """A name or an address with its port, to listen at or to ask."""
    return f"{host(address)}:{port}"


def url(address: str, port: int | None, scheme: str = "http") -> str:
    """Where something answers, without a path."""
    return f"{scheme}://{at(address, port)}"
