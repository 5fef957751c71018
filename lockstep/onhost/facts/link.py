"""The fast link of one member of a cluster: carrier, RDMA device, answers of peers."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.onhost.facts.reader_helpers import folder_paths, run, text
from lockstep.onhost.systemd import units as systemd

# Bytes of a frame that are not ping's: the headers of IP and ICMP, by IP's version.
_HEADERS = {4: 28, 6: 48}
_CHOSEN = re.compile(r"NCCL INFO .*?(?:Using network|Assigned NET plugin) (\w+)")
_START = "ExecMainStartTimestampMonotonic"


def rdma(root: str = "/sys/class/infiniband") -> dict[str, dict[str, str]]:
    """Return the RDMA device of each interface, and the state of that device's port."""
    devices = {}
    for device in folder_paths(root):
        # "4: ACTIVE"
        state = (text(f"{device}/ports/1/state") or "").rpartition(" ")[2]
        for net in folder_paths(f"{device}/device/net"):
            devices[os.path.basename(net)] = {"device": os.path.basename(device), "state": state}
    return devices


def interface_link(name: str, devices: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    """Return an interface's carrier, MTU, speed in Mbit/s, RDMA device; None if it is absent."""
    root = f"/sys/class/net/{name}"
    if not os.path.isdir(root):
        return None
    speed = text(f"{root}/speed") or ""
    return {
        "carrier": text(f"{root}/carrier") == "1",
        "mtu": int(text(f"{root}/mtu") or 0),
        # A virtual interface has no speed.
        "speed": int(speed) if speed.isdecimal() else None,
        "rdma": devices.get(name),
    }


def _ping_fault(address: str, interface: str | None, mtu: int) -> str:
    """Send a whole frame to a peer; return "" if it comes back, else ping's message."""
    words = ["ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "2", "-M", "do"]
    size = mtu - _HEADERS[6 if ":" in address else 4]
    words += ["-s", str(size), *(["-I", interface] if interface else []), address]
    result = run(*words, limit_s=20)
    ping_output = result.stdout + result.stderr
    lines = [line for line in ping_output.splitlines() if "error" in line or "loss" in line]
    return (
        ""
        if result.returncode == 0
        else (lines or ping_output.splitlines() or ["no answer"])[0][:200]
    )


def _nccl_network_last_start(units: list[str]) -> dict[str, Any]:
    """Return NCCL's choice in the log of the last started unit; unit null if none of them ran."""

    def began(state: dict[str, str]) -> int:
        return int(state.get(_START) or 0) if state.get("InvocationID") else 0

    unit, newest = max(
        systemd.properties(units, "InvocationID", _START).items(),
        key=lambda unit_state: began(unit_state[1]),
        default=("", {}),
    )
    if not began(newest):
        return {"unit": None, "network": None, "said": False}
    match = "_SYSTEMD_INVOCATION_ID=" + newest["InvocationID"]
    log = run("journalctl", "--no-pager", "-q", "-o", "cat", match).stdout
    return {"unit": unit, "network": nccl_network_in_log(log), "said": "NCCL" in log}


def nccl_network_in_log(log: str) -> str | None:
    """Return the last network that NCCL says it uses ("IB", "Socket"); None if it says none."""
    networks = _CHOSEN.findall(log)
    return networks[-1] if networks else None


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return {"links", "rdma", "peers", "nccl"}, by interface and by address.

    Each peer gets one packet of a whole frame that may not be fragmented on its way. NCCL's choice
    is read from the log of the unit that started last. `question` is {"interfaces": […], "peers":
    {ADDRESS: [INTERFACE or null, MTU]}, "units": […]}.
    """
    devices = rdma()
    with ThreadPoolExecutor(8) as pool:
        answers = {
            address: pool.submit(_ping_fault, address, interface, mtu)
            for address, (interface, mtu) in question["peers"].items()
        }
    return {
        "links": {name: interface_link(name, devices) for name in question["interfaces"]},
        "rdma": devices,
        "peers": {address: answer.result() for address, answer in answers.items()},
        "nccl": _nccl_network_last_start(question["units"]),
    }
