"""Settings of an SSH connection for a deploy over a real network."""

from __future__ import annotations

import os
import socket
from typing import Any

from pyinfra import host
from pyinfra.connectors import util as commands

# The device at which getpass asks.
_TERMINAL = "/dev/tty"
# Seconds without an answer until a silent peer is given up; pyinfra alone waits forever.
DEAD_PEER_S = 45


class NoPassword(OSError):
    """Sudo wants a password, and there is no terminal to ask for it at."""


def refuse_prompt_without_terminal() -> None:
    """Make a host fail with one sentence where pyinfra would ask nobody for sudo's password."""
    try:
        os.close(os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        commands.getpass = _refuse_to_ask


def _refuse_to_ask(prompt: str) -> str:
    raise NoPassword(
        "sudo: a password is required, and there is no terminal to ask for it at. Remedy: let the "
        "account use sudo without a password, or deploy from a terminal."
    )


def set_socket_options() -> None:
    """Have connections send small packets at once, and notice a peer that went silent.

    paramiko leaves Nagle's algorithm on, which costs 40 ms a command (measured 2026-11, loopback),
    and no time-out on a lost peer. A ProxyCommand has no such socket and is left as it is.
    """
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    sock = getattr(transport, "sock", None)
    if sock is None or not hasattr(sock, "setsockopt"):
        return
    for level, name, value in (
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
        # Name on macOS, which has no TCP_USER_TIMEOUT and gives up later on data that nobody takes.
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", (DEAD_PEER_S - 10) // 5),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_PEER_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(level, getattr(socket, name), value)


def is_connection_lost(of: Any) -> bool:
    """Tell whether the connection to a host was made and is lost."""
    client = getattr(getattr(of, "connector", None), "client", None)
    transport = client.get_transport() if client else None
    return transport is not None and not transport.is_active()


def host_ip_address(of: Any) -> str | None:
    """Return the IP address at which this process reaches a host, None where that is unknown."""
    client = getattr(of.connector, "client", None)
    transport = client.get_transport() if client else None
    try:
        peer = transport.getpeername() if transport else None
    except (OSError, AttributeError):
        return None
    # Through a jump host, paramiko knows only the name that was asked for, and no socket.
    return str(peer[0]) if isinstance(peer, tuple) and peer[0] else None
