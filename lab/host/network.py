"""The lab's own network: one namespace with a bridge, one per host, and no route out."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from lab.core.errors import LabError
from lab.core.run import run
from lab.core.state import CONTROL_ADDRESS, INTERFACE, PREFIX, Host, Lab

BRIDGE = "br0"
#: The first port as DGX OS names it; a host boots without it, as a Spark without a cable does.
CONNECTX = "enp1s0f0np0"
BRIDGE_MAC = "02:4c:53:00:00:01"
NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


def ip(namespace: str, *commands: str) -> None:
    """Run ``ip`` commands, one per line, inside ``namespace``, in one process."""
    run(["ip", "-netns", namespace, "-batch", "-"], stdin="\n".join(commands) + "\n")


def enter(namespace: str) -> None:
    """Move the calling thread, and what it starts from now on, into ``namespace``."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        handle = os.open(NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise LabError(
            f"there is no network namespace {namespace}", "Run: lockstep lab up"
        ) from None
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise LabError(
                f"cannot enter network namespace {namespace}: {os.strerror(ctypes.get_errno())}",
                "The lab needs root: run the command with sudo.",
            )
    finally:
        os.close(handle)


def make_bridge(lab: Lab) -> None:
    """Create the lab's namespace with the bridge that carries the control address."""
    run(["ip", "netns", "add", lab.namespace])
    ip(
        lab.namespace,
        "link set lo up",
        f"link add {BRIDGE} address {BRIDGE_MAC} type bridge",
        f"link set {BRIDGE} up",
        f"address add {CONTROL_ADDRESS}/{PREFIX} dev {BRIDGE}",
    )
    _answer_only_for_own_address(lab.namespace)


def connect(lab: Lab, host: Host) -> None:
    """Give ``host`` a new network stack of its own, cabled to the bridge."""
    namespace = lab.host_namespace(host)
    run(["ip", "netns", "add", namespace])
    ip(
        lab.namespace,
        f"link add {host.name} type veth peer name {INTERFACE} address {host.mac}"
        f" netns {namespace}",
        f"link set {host.name} master {BRIDGE} up",
    )
    ip(
        namespace,
        "link set lo up",
        f"address add {host.address}/{PREFIX} dev {INTERFACE}",
        f"link set {INTERFACE} up",
    )
    _answer_only_for_own_address(namespace)


def disconnect(lab: Lab, host: Host) -> None:
    """Remove ``host``'s network stack at once: every connection is gone without a goodbye."""
    run(["ip", "-netns", lab.namespace, "link", "delete", host.name], check=False)
    run(["ip", "netns", "delete", lab.host_namespace(host)], check=False)


def plug(lab: Lab, port: str, is_plugged: bool) -> None:
    """Put ``port`` on the bridge, or take it off: then nothing passes and no peer is told."""
    ip(lab.namespace, f"link set {port} " + (f"master {BRIDGE}" if is_plugged else "nomaster"))


def connectx(lab: Lab, host: Host, is_plugged: bool) -> None:
    """Put a cable into ``host``'s ConnectX port, or pull it: then the port itself is gone.

    As DGX OS does (package dgx-spark-mlnx-hotplug): no cable, no interface.
    """
    port = f"{host.name}-cx"
    run(["ip", "-netns", lab.namespace, "link", "delete", port], check=False)
    if not is_plugged:
        return
    namespace = lab.host_namespace(host)
    ip(
        lab.namespace,
        f"link add {port} type veth peer name {CONNECTX} netns {namespace}",
        f"link set {port} master {BRIDGE} up",
    )
    ip(namespace, f"link set {CONNECTX} up")


def remove_all(lab: Lab) -> None:
    """Remove the lab's namespaces, those of its hosts included, whatever state they are in."""
    if not NAMESPACES.is_dir():
        return
    for path in sorted(NAMESPACES.iterdir()):
        if path.name == lab.namespace or path.name.startswith(lab.namespace + "."):
            run(["ip", "netns", "delete", path.name], check=False)


def _answer_only_for_own_address(namespace: str) -> None:
    setting = "/proc/sys/net/ipv4/conf/all/arp_ignore"
    run(["nsenter", f"--net={NAMESPACES / namespace}", "tee", setting], stdin="1")
