"""Who listens at this host's ports, by the kernel's own tables."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TABLES = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))


@dataclass(frozen=True)
class Listener:
    """A listening socket.

    Attributes:
        protocol: "tcp" or "udp".
        address: At which it listens, "0.0.0.0" or "::" for all.
        port: Its number.
        uid: The account that made it.
        processes: Every process that has it, youngest first; () where they cannot be read.
    """

    protocol: str
    address: str
    port: int
    uid: int
    processes: tuple[int, ...] = ()


def listeners(proc: Path = Path("/proc")) -> Iterator[Listener]:
    """Every listening socket, with its processes as far as this account may read them."""
    sockets: dict[str, Listener] = {}
    for table, state in _TABLES:
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            # An inode of 0 is a socket that its program has closed.
            if words[3] == state and words[9] != "0":
                number, _, port = words[1].rpartition(":")
                protocol = table.removesuffix("6")
                address = address_of(number)
                sockets[words[9]] = Listener(protocol, address, int(port, 16), int(words[7]))
    holders = _processes(sockets.keys(), proc)
    for inode, listener in sockets.items():
        yield Listener(
            listener.protocol,
            listener.address,
            listener.port,
            listener.uid,
            tuple(holders.get(inode, ())),
        )


def at_port(port: int, proc: Path = Path("/proc")) -> list[Listener]:
    """Those that listen at a port by TCP, at whatever address."""
    return [each for each in listeners(proc) if (each.protocol, each.port) == ("tcp", port)]


def address_of(number: str) -> str:
    """An address as people write it; the kernel writes words of the machine's byte order."""
    words = [int(number[at : at + 8], 16) for at in range(0, len(number), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, raw)


def _processes(inodes: Iterable[str], proc: Path) -> dict[str, list[int]]:
    """Inode → ids of the processes that have it, youngest first."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, list[int]] = {}
    for pid in sorted(_ids(proc), reverse=True) if wanted else []:
        for link in _links(f"{proc}/{pid}/fd") & wanted.keys():
            found.setdefault(wanted[link], []).append(pid)
    return found


def _ids(proc: Path) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _links(folder: str) -> set[str]:
    """What a process has open, as far as it lives and is this account's to read."""
    links = set()
    with suppress(OSError):
        for name in os.listdir(folder):
            # Of this process, the descriptor by which the folder is read is gone by now.
            with suppress(OSError):
                links.add(os.readlink(f"{folder}/{name}"))
    return links
