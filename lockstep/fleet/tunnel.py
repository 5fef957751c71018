"""A tunnel by ssh to loopback ports of a host."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from lockstep.core.errors import LockstepError
from lockstep.fleet.login import Login
from lockstep.inventory.bound_models import LOOPBACK
from lockstep.onhost.core import address_text

#: Seconds in which ssh must log in and open the ports.
OPENS_WITHIN_S = 30.0


@dataclass(frozen=True)
class Tunnel:
    """Local addresses of a host's ports, and the ssh process behind them, if one is needed."""

    where: Login
    urls: tuple[str, ...]
    process: subprocess.Popen[str] | None = None

    def check(self) -> None:
        """Raise LockstepError if ssh has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise _lost_tunnel(self.process, self.where, "the tunnel to the host has ended")


@contextlib.contextmanager
def tunnel(where: Login, urls: Sequence[str], *, same_ports: bool = False) -> Iterator[Tunnel]:
    """Open local addresses of the host's ports for as long as the block runs.

    Args:
        where: The host; on this machine itself the addresses stay as they are.
        urls: Addresses there, without a path.
        same_ports: Use the host's port number here where it is free; else any free one.

    Raises:
        LockstepError: ssh ended, or the port never opened.
    """
    if not where.words:
        yield Tunnel(where, tuple(urls))
        return
    parts = [urlsplit(url) for url in urls]
    ports = _free_ports([(part.port or 0) if same_ports else 0 for part in parts])
    remote_places = [
        address_text.address_with_port(part.hostname or LOOPBACK, part.port or 80) for part in parts
    ]
    forwards = [
        word
        for port, place in zip(ports, remote_places, strict=True)
        for word in ("-L", f"{LOOPBACK}:{port}:{place}")
    ]
    options = ["-N", "-o", "ExitOnForwardFailure=yes", *forwards]
    argv = [where.words[0], *options, *where.words[1:]]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for port in ports:
                _wait_open(port, process, where)
            yield Tunnel(where, tuple(address_text.url(LOOPBACK, port) for port in ports), process)
        finally:
            process.terminate()


def _free_ports(preferred_ports: Sequence[int]) -> list[int]:
    """Return free ports here: the preferred one (0: any), or another where that one is in use."""
    with contextlib.ExitStack() as stack:
        probes = []
        for port in preferred_ports:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                probe.bind((LOOPBACK, 0))
            probes.append(probe)
        return [int(probe.getsockname()[1]) for probe in probes]


def _wait_open(port: int, process: subprocess.Popen[str], where: Login) -> None:
    limit = time.monotonic() + OPENS_WITHIN_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    process.terminate()
    raise _lost_tunnel(process, where, "no tunnel to the host")


def _lost_tunnel(process: subprocess.Popen[str], where: Login, description: str) -> LockstepError:
    error_text = process.stderr.read().strip() if process.stderr else ""
    return LockstepError(
        description,
        where=where.name,
        found=error_text.splitlines()[-1] if error_text else "",
        remedy="Try `ssh` to it by hand; its sshd must allow TCP forwarding.",
    )
