"""Addresses in URLs and before ports: an IPv6 address stands in brackets (RFC 3986)."""

from __future__ import annotations

#: Addresses of sockets that listen everywhere → the address at which the host reaches itself.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def host_in_url(address: str) -> str:
    """Return a name or an address in the form that URLs need."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def address_with_port(address: str, port: int | str | None) -> str:
    """Return a name or an address with its port, to listen at or to connect to."""
    return f"{host_in_url(address)}:{port}"


def url(address: str, port: int | None, scheme: str = "http") -> str:
    """Return the URL of a service, without a path."""
    return f"{scheme}://{address_with_port(address, port)}"
