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
from lockstep.onhost.core.address import at
from lockstep.onhost.facts.reading import Facts, digest, listed, rows, run, text
from lockstep.onhost.records.ours import UNITS, marked
from lockstep.onhost.system import listeners as kernel_listeners

#: What the kernel's messages go to, as an item.
SENT = "kernel messages to"
VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "tap", "tun", "wg")


def wireless_way() -> str:
    """The wireless interface of NetworkManager's by which this host reaches others, "" for none."""
    if not os.path.exists("/run/NetworkManager"):
        return ""
    ways = (row.split()[:2] for row in rows("/proc/net/route")[1:])
    way = next((name for name, to in ways if to == "00000000"), "")
    return way if way and os.path.exists(f"/sys/class/net/{way}/wireless") else ""


class Listener(NamedTuple):
    """A listening socket; `place` is the control group of its process, "" where none is known."""

    protocol: str
    address: str
    port: int
    process: str = ""
    place: str = ""

    @property
    def unit(self) -> str:
        """The service or socket that it belongs to, "" for none."""
        parts = self.place.split("/")
        return next((part for part in parts if part.endswith((".service", ".socket"))), "")


def listeners(ports: Iterable[int]) -> dict[str, dict[str, Any]]:
    """Port → who listens on it by TCP: {"process", "unit": its control group, "ours": whether a
    deploy wrote its unit, this one's or an earlier one's}.
    """
    wanted = set(ports)
    return {
        str(each.port): {
            "process": each.process or "unknown",
            "unit": each.place,
            "ours": bool(each.unit) and marked(Path(UNITS + each.unit)),
        }
        for each in _listening()
        if each.port in wanted and each.protocol == "tcp"
    }


def sockets(asked: dict[str, Any]) -> Facts:
    """Who listens where. Models come and go, so theirs count only at an address not asked for.
    Asked: "ports" of ours, each with the addresses at which it may be open, and our "units".
    """
    first = int((text("/proc/sys/net/ipv4/ip_local_port_range") or "32768").split()[0])
    ports: dict[str, list[str]] = asked["ports"]
    own = _addresses()
    for each in (found for found in _listening() if found.process):
        address = "(own)" if each.address in own else each.address
        binds = ports.get(str(each.port))
        if binds is not None:
            loopback = ["127.0.0.1", "::1"] if "localhost" in binds else []
            if each.protocol == "tcp" and address not in (*binds, *loopback):
                yield "exposed port", at(address, each.port), each.process
            continue
        in_container = "/docker-" in each.place or "/docker/" in each.place
        if each.unit in asked["units"] or in_container:
            continue
        shown = "*" if each.port >= first else str(each.port)
        yield "socket", f"{each.protocol} {address}:{shown} {each.process}", "listens"


def _listening() -> Iterator[Listener]:
    of_systemd = _socket_units()
    for each in kernel_listeners.listeners():
        found = Listener(each.protocol, each.address, each.port)
        if not each.processes:
            yield found
            continue
        # systemd, the oldest one, hands sockets on to a service. One that does not run just now
        # leaves them with systemd, whose own control group says nothing.
        pid = each.processes[0]
        place = (text(f"/proc/{pid}/cgroup") or "").rpartition("\n")[2].rpartition(":")[2]
        if pid == 1:
            place = of_systemd.get((each.address, each.port), place)
        process = text(f"/proc/{pid}/comm") or "unknown"
        yield found._replace(process=process, place=place)


def _socket_units() -> dict[tuple[str, int], str]:
    """Address and port → the socket unit by which systemd listens there."""
    found = {}
    told = run("systemctl", "list-sockets", "--all", "--full", "--no-legend").stdout
    for words in map(str.split, told.splitlines()):
        address, colon, port = words[0].rpartition(":") if len(words) > 1 else ("", "", "")
        if colon and port.isdigit():
            found[address.strip("[]"), int(port)] = words[1]
    return found


def _addresses() -> set[str]:
    """Addresses of this host beyond loopback."""
    told = run("ip", "-o", "address").stdout
    return set(re.findall(r"inet6? ([^/\s]+)", told)) - {"127.0.0.1", "::1"}


def reach(url: str) -> str | None:
    """None when a TCP connection to the URL's host can be made, else what failed."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        return None
    port = parts.port or {"https": 443, "git": 9418}.get(parts.scheme, 80)
    try:
        with socket.create_connection((parts.hostname, port), timeout=8):
            return None
    except OSError as fault:
        return str(fault)


def fabric(asked: dict[str, Any]) -> dict[str, Any]:
    """The fast link as it is: "sha256" of the netplan file, null without one; each of the
    "interfaces" ({"mtu", "carrier", "addresses"}), null for one that is not there; all that are
    "known". Asked: "path" of the netplan file, "interfaces" by name.
    """
    every = {}
    for link in json.loads(run("ip", "-json", "address", "show").stdout or "[]"):
        addresses = [f"{each['local']}/{each['prefixlen']}" for each in link.get("addr_info", [])]
        carrier = "LOWER_UP" in link["flags"]
        every[link["ifname"]] = {"mtu": link["mtu"], "carrier": carrier, "addresses": addresses}
    return {
        "sha256": digest(asked["path"]),
        "interfaces": {name: every.get(name) for name in asked["interfaces"]},
        "known": sorted(every),
    }


def interfaces(_: object) -> Facts:
    """Settings of real interfaces; addresses are each host's own."""
    for path in listed("/sys/class/net"):
        name = os.path.basename(path)
        if name.startswith(VIRTUAL):
            continue
        for key in ("mtu", "speed", "operstate"):
            value = text(f"{path}/{key}")
            if value:
                yield "network", f"{name} {key}", value
    routes = [line.split() for line in rows("/proc/net/route")[1:]]
    ways = [words[0] for words in routes if words[1] == "00000000" and words[7] == "00000000"]
    yield "network", "default route", " ".join(ways) or "none"
    for line in rows("/etc/resolv.conf"):
        words = line.split()
        if words and words[0] in ("nameserver", "search", "options"):
            yield "network", " ".join(words), "present"


def netconsole(_: object) -> Facts:
    """Where the kernel sends its messages, while it does; targets of others are theirs."""
    folder = layout.Paths().netconsole
    if text(f"{folder}/enabled") == "1":
        address, port = text(f"{folder}/remote_ip") or "", text(f"{folder}/remote_port")
        yield "netconsole", SENT, at(address, port or "")
