"""Listeners at this host's ports and their owners, by the kernel's own tables."""

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
class SocketOwner:
    """A listening socket.

    Attributes:
        protocol: "tcp" or "udp".
        address: Its address, "0.0.0.0" or "::" for all.
        port: Its number.
        uid: The account that made it.
        processes: Every process that has it, youngest first; () if they cannot be read.
    """

    protocol: str
    address: str
    port: int
    uid: int
    processes: tuple[int, ...] = ()


def listeners(proc: Path = Path("/proc")) -> Iterator[SocketOwner]:
    """Yield every listening socket, with its processes as far as this account may read them."""
    sockets: dict[str, SocketOwner] = {}
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
                sockets[words[9]] = SocketOwner(protocol, address, int(port, 16), int(words[7]))
    holders = _processes(sockets.keys(), proc)
    for inode, listener in sockets.items():
        yield SocketOwner(
            listener.protocol,
            listener.address,
            listener.port,
            listener.uid,
            tuple(holders.get(inode, ())),
        )


def listeners_at_port(port: int, proc: Path = Path("/proc")) -> list[SocketOwner]:
    """Return the TCP listeners at a port, at any address."""
    return [
        listener
        for listener in listeners(proc)
        if (listener.protocol, listener.port) == ("tcp", port)
    ]


def address_of(number: str) -> str:
    """Format an address for people; the kernel writes words in the machine's byte order."""
    words = [int(number[at : at + 8], 16) for at in range(0, len(number), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, raw)


def _processes(inodes: Iterable[str], proc: Path) -> dict[str, list[int]]:
    """Return for each inode the ids of the processes that have it, youngest first."""
    inode_links = {f"socket:[{inode}]": inode for inode in inodes}
    process_ids: dict[str, list[int]] = {}
    for pid in sorted(_all_process_ids(proc), reverse=True) if inode_links else []:
        for link in _open_files(f"{proc}/{pid}/fd") & inode_links.keys():
            process_ids.setdefault(inode_links[link], []).append(pid)
    return process_ids


def _all_process_ids(proc: Path) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _open_files(folder: str) -> set[str]:
    """Return the open files of a process, if it lives and this account may read them."""
    links = set()
    with suppress(OSError):
        for name in os.listdir(folder):
            # In this process, the descriptor that read the folder is gone by now.
            with suppress(OSError):
                links.add(os.readlink(f"{folder}/{name}"))
    return links
