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
from lockstep.inventory.bound_targets import LOOPBACK
from lockstep.onhost.core import address

#: Seconds in which ssh must have logged in and opened the ports.
OPENS_WITHIN_S = 30.0


@dataclass(frozen=True)
class Tunnel:
    """Local addresses of a host's ports, and the ssh that carries them; None where none does."""

    where: Login
    urls: tuple[str, ...]
    process: subprocess.Popen[str] | None = None

    def check(self) -> None:
        """Raise LockstepError where ssh has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise _lost(self.process, self.where, "the tunnel to the host has ended")


@contextlib.contextmanager
def tunnel(where: Login, urls: Sequence[str], *, same_ports: bool = False) -> Iterator[Tunnel]:
    """Local addresses of the host's ports, for as long as the block runs.

    Args:
        where: The host; on this machine itself the addresses are as they are.
        urls: Addresses there, without a path.
        same_ports: Take the host's own port here where it is free; else any that is.

    Raises:
        LockstepError: ssh ended, or the port never opened.
    """
    if not where.words:
        yield Tunnel(where, tuple(urls))
        return
    parts = [urlsplit(url) for url in urls]
    ports = _free_ports([(part.port or 0) if same_ports else 0 for part in parts])
    there = [address.at(part.hostname or LOOPBACK, part.port or 80) for part in parts]
    forwards = [
        word
        for port, place in zip(ports, there, strict=True)
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
            yield Tunnel(where, tuple(address.url(LOOPBACK, port) for port in ports), process)
        finally:
            process.terminate()


def _free_ports(wanted: Sequence[int]) -> list[int]:
    """Ports that nobody has here: each as it is wanted (0: any), or another where that is taken."""
    with contextlib.ExitStack() as stack:
        probes = []
        for port in wanted:
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
    raise _lost(process, where, "no tunnel to the host")


def _lost(process: subprocess.Popen[str], where: Login, what: str) -> LockstepError:
    said = process.stderr.read().strip() if process.stderr else ""
    return LockstepError(
        what,
        where=where.name,
        found=said.splitlines()[-1] if said else "",
        remedy="Try `ssh` to it by hand; its sshd must allow TCP forwarding.",
    )
