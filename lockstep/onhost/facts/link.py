"""The fast link of one member of a cluster: carrier, RDMA device, whether a peer answers."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.onhost.facts.reading import listed, run, states, text

# Bytes of a frame that are not ping's: the header of IP and that of ICMP, by IP's version.
_HEADERS = {4: 28, 6: 48}
_CHOSEN = re.compile(r"NCCL INFO .*?(?:Using network|Assigned NET plugin) (\w+)")
_START = "ExecMainStartTimestampMonotonic"


def rdma(root: str = "/sys/class/infiniband") -> dict[str, dict[str, str]]:
    """Interface → its RDMA device, and the state of that device's port."""
    found = {}
    for device in listed(root):
        # "4: ACTIVE"
        state = (text(f"{device}/ports/1/state") or "").rpartition(" ")[2]
        for net in listed(f"{device}/device/net"):
            found[os.path.basename(net)] = {"device": os.path.basename(device), "state": state}
    return found


def link(name: str, devices: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    """An interface: carrier, MTU, speed in Mbit/s, RDMA device; None where it is not there."""
    root = f"/sys/class/net/{name}"
    if not os.path.isdir(root):
        return None
    speed = text(f"{root}/speed") or ""
    return {
        "carrier": text(f"{root}/carrier") == "1",
        "mtu": int(text(f"{root}/mtu") or 0),
        # A virtual interface knows none.
        "speed": int(speed) if speed.isdecimal() else None,
        "rdma": devices.get(name),
    }


def _reached(address: str, interface: str | None, mtu: int) -> str:
    """ "" where a whole frame comes back; else what ping says."""
    words = ["ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "2", "-M", "do"]
    size = mtu - _HEADERS[6 if ":" in address else 4]
    words += ["-s", str(size), *(["-I", interface] if interface else []), address]
    done = run(*words, limit_s=20)
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if "error" in line or "loss" in line]
    return "" if done.returncode == 0 else (lines or said.splitlines() or ["no answer"])[0][:200]


def _chosen(units: list[str]) -> dict[str, Any]:
    """What NCCL says in the log of the unit's last start; unit null where none of them ran."""

    def began(state: dict[str, str]) -> int:
        return int(state.get(_START) or 0) if state.get("InvocationID") else 0

    shown = run("systemctl", "show", f"--property=Id,InvocationID,{_START}", "--", *units)
    unit, newest = max(
        states(shown.stdout).items(), key=lambda each: began(each[1]), default=("", {})
    )
    if not began(newest):
        return {"unit": None, "network": None, "said": False}
    match = "_SYSTEMD_INVOCATION_ID=" + newest["InvocationID"]
    log = run("journalctl", "--no-pager", "-q", "-o", "cat", match).stdout
    return {"unit": unit, "network": chosen(log), "said": "NCCL" in log}


def chosen(log: str) -> str | None:
    """The network that NCCL says it uses ("IB", "Socket"), the last one; None: it says none."""
    found = _CHOSEN.findall(log)
    return found[-1] if found else None


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """{"links", "rdma", "peers", "nccl"}, by interface and by address.

    Each peer is asked by one packet of a whole frame that may not be cut into pieces on its way.
    What NCCL chose is read from the log of the unit that started last. Asked: {"interfaces": […],
    "peers": {ADDRESS: [INTERFACE or null, MTU]}, "units": […]}.
    """
    devices = rdma()
    with ThreadPoolExecutor(8) as pool:
        answers = {
            address: pool.submit(_reached, address, interface, mtu)
            for address, (interface, mtu) in asked["peers"].items()
        }
    return {
        "links": {name: link(name, devices) for name in asked["interfaces"]},
        "rdma": devices,
        "peers": {address: answer.result() for address, answer in answers.items()},
        "nccl": _chosen(asked["units"]),
    }
