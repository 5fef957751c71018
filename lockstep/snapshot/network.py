"""Network: listening sockets, interfaces, routes, name servers, firewall."""

from __future__ import annotations

import os
import re
import socket
import struct

from lockstep.snapshot.collected import Collected, listed, run, text

_TABLES = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))
VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "tap", "tun", "wg")
# Docker makes rules of its own for every container, in these tables.
_OF_DOCKER = {f"{family} {name}" for family in ("ip", "ip6") for name in ("nat", "raw", "mangle")}


def sockets(found: Collected) -> None:
    """Who listens where. Models come and go, so theirs count only at an address not asked for."""
    first = int((text("/proc/sys/net/ipv4/ip_local_port_range") or "32768").split()[0])
    ports: dict[str, list[str]] = found.asked["ports"]
    sockets = _listening()
    for inode, (pid, process) in _processes(set(sockets)).items():
        protocol, address, port = sockets[inode]
        if str(port) in ports:
            if protocol == "tcp" and address not in (
                *ports[str(port)],
                *_loopback(ports[str(port)]),
            ):
                found.put("exposed port", f"{address}:{port}", process)
            continue
        if _unit(pid) in found.asked["units"] or _in_container(pid):
            continue
        shown = "*" if port >= first else str(port)
        found.put("socket", f"{protocol} {address}:{shown} {process}", "listens")


def _loopback(binds: list[str]) -> list[str]:
    return ["127.0.0.1", "::1"] if "localhost" in binds else []


def _listening() -> dict[str, tuple[str, str, int]]:
    """Inode → (protocol, address, port)."""
    own = _addresses()
    found = {}
    for table, state in _TABLES:
        for line in (text(f"/proc/net/{table}") or "").splitlines()[1:]:
            words = line.split()
            if words[3] != state or words[9] == "0":
                continue
            number, _, port = words[1].rpartition(":")
            address = _address(number)
            found[words[9]] = (
                table.removesuffix("6"),
                "(own)" if address in own else address,
                int(port, 16),
            )
    return found


def _address(number: str) -> str:
    """The kernel writes addresses as words of the machine's byte order."""
    words = [int(number[at : at + 8], 16) for at in range(0, len(number), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, raw)


def _addresses() -> set[str]:
    """Addresses of this host beyond loopback."""
    told = run("ip", "-o", "address").stdout
    every = set(re.findall(r"inet6? ([^/\s]+)", told))
    return every - {"127.0.0.1", "::1"}


def _processes(inodes: set[str]) -> dict[str, tuple[str, str]]:
    """Inode → (process id, name) for listening sockets."""
    found: dict[str, tuple[str, str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        for link in links:
            inode = link[8:-1] if link.startswith("socket:[") else ""
            if inode in inodes and inode not in found:
                found[inode] = (pid, text(f"/proc/{pid}/comm") or "unknown")
    return found


def _cgroup(pid: str) -> str:
    return (text(f"/proc/{pid}/cgroup") or "").rpartition("\n")[2].rpartition(":")[2]


def _unit(pid: str) -> str:
    return next((part for part in _cgroup(pid).split("/") if part.endswith(".service")), "")


def _in_container(pid: str) -> bool:
    place = _cgroup(pid)
    return "/docker-" in place or "/docker/" in place


def interfaces(found: Collected) -> None:
    """Settings of real interfaces; addresses are each host's own."""
    for path in listed("/sys/class/net"):
        name = os.path.basename(path)
        if name.startswith(VIRTUAL):
            continue
        for key in ("mtu", "speed", "operstate"):
            value = text(f"{path}/{key}")
            if value:
                found.put("network", f"{name} {key}", value)
    routes = [line.split() for line in (text("/proc/net/route") or "").splitlines()[1:]]
    ways = [words[0] for words in routes if words[1] == "00000000" and words[7] == "00000000"]
    found.put("network", "default route", " ".join(ways) or "none")
    for line in (text("/etc/resolv.conf") or "").splitlines():
        words = line.split()
        if words and words[0] in ("nameserver", "search", "options"):
            found.put("network", " ".join(words), "present")


def firewall(found: Collected) -> None:
    """Rules of the host's own; Docker's, which follow its containers, are left out."""
    chains = run("iptables", "-S").stdout.splitlines()
    rules = [line for line in chains if re.match(r"-[AP] (INPUT|OUTPUT|DOCKER-USER)\b", line)]
    for rule in rules:
        found.put("firewall", rule, "present")
    for line in run("nft", "list", "tables").stdout.splitlines():
        name = line.removeprefix("table ").strip()
        # The deploy's own table follows what each host is asked to open.
        ours = name.rpartition(" ")[2].startswith("lockstep")
        if name not in _OF_DOCKER | {"ip filter", "ip6 filter"} and not ours:
            told = run("nft", "-s", "list", "table", *name.split()).stdout
            found.put("firewall", f"table {name}", found.seal(told.encode()))
