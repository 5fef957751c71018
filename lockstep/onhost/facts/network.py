"""Network: listening sockets, interfaces, routes, name servers, addresses to reach."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.onhost.core import layout
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    lines_of_file,
    output_or_raise,
    run,
    text,
)
from lockstep.onhost.records.ownership import UNITS, is_marked
from lockstep.onhost.system import listeners as kernel_listeners
from lockstep.onhost.systemd import units

#: The item of the destination of the kernel's messages.
SENT = "kernel messages to"
VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "tap", "tun", "wg")


def wireless_default_interface() -> str:
    """Return NetworkManager's wireless interface of the default route, "" for none."""
    if not os.path.exists("/run/NetworkManager"):
        return ""
    ways = (row.split()[:2] for row in lines_of_file("/proc/net/route")[1:])
    way = next((name for name, to in ways if to == "00000000"), "")
    return way if way and os.path.exists(f"/sys/class/net/{way}/wireless") else ""


class ListeningSocket(NamedTuple):
    """A listening socket; `place` is the control group of its process, "" if unknown."""

    protocol: str
    address: str
    port: int
    process: str = ""
    place: str = ""

    @property
    def unit(self) -> str:
        """The service or socket unit that it belongs to, "" for none."""
        parts = self.place.split("/")
        return next((part for part in parts if part.endswith((".service", ".socket"))), "")


def listeners(ports: Iterable[int]) -> dict[str, dict[str, Any]]:
    """Return the process that listens on each port by TCP.

    Returns:
        Port → {"process", "unit": its control group, "ours": whether this or an earlier deploy
        wrote its unit}.
    """
    wanted_ports = set(ports)
    return {
        str(listener.port): {
            "process": listener.process or "unknown",
            "unit": listener.place,
            "ours": bool(listener.unit) and is_marked(Path(UNITS + listener.unit)),
        }
        for listener in _listening_sockets()
        if listener.port in wanted_ports and listener.protocol == "tcp"
    }


def foreign_and_exposed_sockets(question: dict[str, Any]) -> Facts:
    """Yield listening sockets; those of models, which come and go, only at unwanted addresses.

    `question` has "ports" of ours, each with the addresses at which it may be open, and our
    "units".
    """
    first = int((text("/proc/sys/net/ipv4/ip_local_port_range") or "32768").split()[0])
    ports: dict[str, list[str]] = question["ports"]
    own = _addresses()
    for listener in (candidate for candidate in _listening_sockets() if candidate.process):
        address = "(own)" if listener.address in own else listener.address
        binds = ports.get(str(listener.port))
        if binds is not None:
            loopback = ["127.0.0.1", "::1"] if "localhost" in binds else []
            if listener.protocol == "tcp" and address not in (*binds, *loopback):
                yield "exposed port", address_with_port(address, listener.port), listener.process
            continue
        in_container = "/docker-" in listener.place or "/docker/" in listener.place
        if listener.unit in question["units"] or in_container:
            continue
        port_text = "*" if listener.port >= first else str(listener.port)
        yield "socket", f"{listener.protocol} {address}:{port_text} {listener.process}", "listens"


def _listening_sockets() -> Iterator[ListeningSocket]:
    of_systemd = _socket_units_by_address()
    for listener in kernel_listeners.listeners():
        listener_found = ListeningSocket(listener.protocol, listener.address, listener.port)
        if not listener.processes:
            yield listener_found
            continue
        # systemd, the oldest process, hands sockets on to a service. A service that does not run
        # now leaves them with systemd, whose own control group says nothing.
        pid = listener.processes[0]
        place = (text(f"/proc/{pid}/cgroup") or "").rpartition("\n")[2].rpartition(":")[2]
        if pid == 1:
            place = of_systemd.get((listener.address, listener.port), place)
        process = text(f"/proc/{pid}/comm") or "unknown"
        yield listener_found._replace(process=process, place=place)


def _socket_units_by_address() -> dict[tuple[str, int], str]:
    """Return the socket unit by which systemd listens, by address and port."""
    units_by_socket = {}
    for place, unit in units.socket_units_by_address().items():
        address, colon, port = place.rpartition(":")
        if colon and port.isdigit():
            units_by_socket[address.strip("[]"), int(port)] = unit
    return units_by_socket


def _addresses() -> set[str]:
    """Return the addresses of this host without loopback."""
    address_text = run("ip", "-o", "address").stdout
    return set(re.findall(r"inet6? ([^/\s]+)", address_text)) - {"127.0.0.1", "::1"}


def connection_fault(url: str) -> str | None:
    """Return None if a TCP connection to the URL's host can be made, else the failure."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        return None
    port = parts.port or {"https": 443, "git": 9418}.get(parts.scheme, 80)
    try:
        with socket.create_connection((parts.hostname, port), timeout=8):
            return None
    except OSError as fault:
        return str(fault)


def fabric(_: object) -> Facts:
    """Yield every interface; where a cable is plugged in, its MTU and its addresses too."""
    for link in json.loads(output_or_raise("ip", "-json", "address", "show")):
        name = link["ifname"]
        yield "interface", name, "present"
        if "LOWER_UP" in link["flags"]:
            parts = link.get("addr_info", [])
            addresses = [f"{part['local']}/{part['prefixlen']}" for part in parts]
            yield "fast link", f"{name} MTU", link["mtu"]
            yield "fast link", f"{name} addresses", " ".join(addresses) or "none"


def interfaces_routes_and_resolvers(_: object) -> Facts:
    """Yield settings of real interfaces, without addresses, which are each host's own."""
    for path in folder_paths("/sys/class/net"):
        name = os.path.basename(path)
        if name.startswith(VIRTUAL):
            continue
        for key in ("mtu", "speed", "operstate"):
            value = text(f"{path}/{key}")
            if value:
                yield "network", f"{name} {key}", value
    routes = [line.split() for line in lines_of_file("/proc/net/route")[1:]]
    ways = [words[0] for words in routes if words[1] == "00000000" and words[7] == "00000000"]
    yield "network", "default route", " ".join(ways) or "none"
    for line in lines_of_file("/etc/resolv.conf"):
        words = line.split()
        if words and words[0] in ("nameserver", "search", "options"):
            yield "network", " ".join(words), "present"


def netconsole(_: object) -> Facts:
    """Yield the destination of the kernel's messages, if enabled; targets of others are theirs."""
    folder = layout.Paths().netconsole
    if text(f"{folder}/enabled") == "1":
        address, port = text(f"{folder}/remote_ip") or "", text(f"{folder}/remote_port")
        yield "netconsole", SENT, address_with_port(address, port or "")
