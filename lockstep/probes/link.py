"""What the fast link of one member of a cluster is. Argument: {"interfaces": […], "peers":
{ADDRESS: [INTERFACE or null, MTU]}, "units": […]}.

Each peer is asked by one packet of a whole frame that may not be cut into pieces on its way. What
NCCL chose is read from the log of the unit that started last.
"""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# Bytes of a frame that are not ping's: the header of IP and that of ICMP, by IP's version.
HEADERS = {4: 28, 6: 48}
CHOSEN = re.compile(r"NCCL INFO .*?(?:Using network|Assigned NET plugin) (\w+)")


def run(*argv: str) -> tuple[int, str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return 127, str(fault)
    return done.returncode, done.stdout + done.stderr


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as text:
            return text.read().strip()
    except OSError:
        return ""


def rdma(root: str = "/sys/class/infiniband") -> dict[str, dict[str, str]]:
    """Interface → its RDMA device, and the state of that device's port."""
    found = {}
    for device in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        nets = f"{root}/{device}/device/net"
        for name in os.listdir(nets) if os.path.isdir(nets) else []:
            # "4: ACTIVE"
            state = read(f"{root}/{device}/ports/1/state").rpartition(" ")[2]
            found[name] = {"device": device, "state": state}
    return found


def link(name: str, devices: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    root = f"/sys/class/net/{name}"
    if not os.path.isdir(root):
        return None
    speed = read(f"{root}/speed")
    return {
        "carrier": read(f"{root}/carrier") == "1",
        "mtu": int(read(f"{root}/mtu") or 0),
        # Mbit/s; a virtual interface knows none.
        "speed": int(speed) if speed.isdecimal() else None,
        "rdma": devices.get(name),
    }


def reached(address: str, interface: str | None, mtu: int) -> str:
    """ "" where a whole frame comes back; else what ping says."""
    words = ["ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "2", "-M", "do"]
    size = mtu - HEADERS[6 if ":" in address else 4]
    words += ["-s", str(size), *(["-I", interface] if interface else []), address]
    code, said = run(*words)
    lines = [line for line in said.splitlines() if "error" in line or "loss" in line]
    return "" if code == 0 else (lines or said.splitlines() or ["no answer"])[0][:200]


def chosen(units: list[str]) -> dict[str, Any]:
    """What NCCL says in the log of the unit's last start; unit null where none of them ran."""
    best: dict[str, Any] = {"unit": None, "network": None, "said": False}
    newest = -1
    for unit in units:
        _, text = run(
            "systemctl", "show", "-p", "InvocationID,ExecMainStartTimestampMonotonic", unit
        )
        state = dict(line.partition("=")[::2] for line in text.splitlines())
        began = state.get("ExecMainStartTimestampMonotonic", "0")
        if not state.get("InvocationID") or not began.isdecimal() or int(began) <= newest:
            continue
        newest = int(began)
        match = "_SYSTEMD_INVOCATION_ID=" + state["InvocationID"]
        _, log = run("journalctl", "--no-pager", "-q", "-o", "cat", match)
        found = CHOSEN.findall(log)
        best = {"unit": unit, "network": found[-1] if found else None, "said": "NCCL" in log}
    return best


def main(asked: dict[str, Any]) -> dict[str, Any]:
    devices = rdma()
    with ThreadPoolExecutor(8) as pool:
        answers = {
            address: pool.submit(reached, address, interface, mtu)
            for address, (interface, mtu) in asked["peers"].items()
        }
    return {
        "links": {name: link(name, devices) for name in asked["interfaces"]},
        "rdma": devices,
        "peers": {address: answer.result() for address, answer in answers.items()},
        "nccl": chosen(asked["units"]),
    }
