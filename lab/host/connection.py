"""Access to a lab that is up for other programs: its description, and its network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.core.errors import LabError
from lab.core.state import CONTROL_ADDRESS, Host, Lab, open_lab
from lab.host import network
from lockstep.fleet.login import ALIVE, ssh_options

SSH_USER = "spark"


@dataclass(frozen=True)
class HostAddress:
    """A host of the lab as an inventory needs it."""

    name: str
    address: str


@dataclass(frozen=True)
class Description:
    """The content of ``lab.json``: everything a deploy needs to reach the hosts and the servers."""

    name: str
    namespace: str
    control_address: str
    hosts: tuple[HostAddress, ...]
    ssh_user: str
    ssh_key: str
    known_hosts: str
    services: dict[str, str]

    @property
    def folder(self) -> Path:
        """The folder that the lab keeps between `up` and `down`; gone with `down --delete`."""
        return Path(self.ssh_key).parent.parent


def describe(lab: Lab, hosts: tuple[Host, ...]) -> Description:
    """The description of ``lab`` with ``hosts``; the services are at fixed ports."""
    web = f"http://{CONTROL_ADDRESS}:3141"
    return Description(
        name=lab.name,
        namespace=lab.namespace,
        control_address=CONTROL_ADDRESS,
        hosts=tuple(HostAddress(host.name, host.address) for host in hosts),
        ssh_user=SSH_USER,
        ssh_key=str(lab.key),
        known_hosts=str(lab.known_hosts),
        services={
            "python_index": f"{web}/simple/",
            "torch_index": f"{web}/torch/",
            "flashinfer_index": f"{web}/flashinfer/",
            "vllm_wheels": f"{web}/vllm-wheels/",
            "git": f"git://{CONTROL_ADDRESS}/",
            "registry": f"{CONTROL_ADDRESS}:5000",
            "hub": f"http://{CONTROL_ADDRESS}:8090",
            "apt": f"{web}/apt/",
        },
    )


def save(lab: Lab, description: Description) -> None:
    """Write ``lab.json`` in one step: from now on the lab is up."""
    new = lab.description.with_name("lab.json.new")
    new.write_text(json.dumps(asdict(description), indent=2) + "\n")
    new.replace(lab.description)


def load(name: str | None = None) -> Description:
    """The description of the lab called ``name`` (default: ``LOCKSTEP_LAB``, else ``lab``).

    Raises ``LabError`` when that lab is not up or cannot be read.
    """
    lab = open_lab(name)
    option = "" if lab.name == "lab" else f" --name {lab.name}"
    remedy = f"Run: lockstep lab up{option}"
    try:
        document = json.loads(lab.description.read_text())
    except FileNotFoundError:
        raise LabError(f"lab {lab.name!r} is not up", remedy) from None
    except PermissionError:
        raise LabError(f"{lab.description} cannot be read", "The lab needs root.") from None
    if not (network.NAMESPACES / lab.namespace).exists():
        raise LabError(f"lab {lab.name!r} has crashed: its network is gone", remedy)
    hosts = tuple(HostAddress(**host) for host in document.pop("hosts"))
    if absent := describe(lab, ()).services.keys() - document["services"].keys():
        raise LabError(
            f"lab {lab.name!r} was brought up by an older Lockstep, without {', '.join(absent)}",
            f"Run: lockstep lab down{option}; lockstep lab up{option}",
        )
    return Description(**document, hosts=hosts)


def enter(description: Description) -> None:
    """Move the calling process into the lab's network, which has no way out."""
    if os.geteuid() != 0:
        raise LabError("the lab's network can only be entered as root", "Run it with sudo.")
    network.enter(description.namespace)


def join() -> Description:
    """Load and enter the lab, for an inventory; without a lab, end with one paragraph."""
    try:
        description = load()
        enter(description)
    except LabError as error:
        print(error.paragraph(), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    return description


def ssh_command(description: Description, host: str, argv: Sequence[str] = ()) -> list[str]:
    """An ``ssh`` command line to ``host`` that checks its key, for use after ``enter``."""
    address = next(
        (host_address.address for host_address in description.hosts if host_address.name == host),
        None,
    )
    if address is None:
        names = ", ".join(host_address.name for host_address in description.hosts)
        raise LabError(f"no host {host!r} in lab {description.name!r}", f"Known: {names}.")
    options = {
        "LogLevel": "ERROR",
        # ssh's usual one withstands quantum computers, and costs 96 ms of processor time here
        # instead of 17 (OpenSSH 9.2, 2026-11-21): much for tests that log in each time.
        "KexAlgorithms": "curve25519-sha256",
    }
    return [
        *client(description.ssh_key, description.known_hosts, options),
        f"{description.ssh_user}@{address}",
        *argv,
    ]


def client(
    key: str | Path, known_hosts: str | Path, options: Mapping[str, str] | None = None
) -> list[str]:
    """``ssh`` and the options that every login to a host of a lab begins with.

    ``options`` are added to them, or replace usual ones.
    """
    usual = {
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        **ALIVE,
    }
    return ["ssh", "-F", "none", "-i", str(key), *ssh_options({**usual, **(options or {})})]


def run_on(
    description: Description, host: str, argv: Sequence[str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` on ``host`` over SSH from outside the lab's network; never raises on failure.

    The words of ``argv`` are joined by spaces and read by the remote shell, as ssh does.
    """
    namespace = Path(network.NAMESPACES / description.namespace)
    command = ["nsenter", f"--net={namespace}", *ssh_command(description, host, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
