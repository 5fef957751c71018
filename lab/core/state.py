"""Names and places of one lab: pure, nothing here touches the machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lab.core.errors import LabError

DEFAULT_NAME = "lab"
CONTROL_ADDRESS = "10.77.0.1"
PREFIX = 24
#: 10.77.0.11 is spark1; the bridge's subnet ends at .254.
MOST_HOSTS = 16
#: The name of the 10-gigabit port on a DGX Spark.
INTERFACE = "enP7s7"


@dataclass(frozen=True)
class Host:
    """One stand-in Spark; ``number`` counts from 1."""

    number: int

    @property
    def name(self) -> str:
        return f"spark{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    @property
    def mac(self) -> str:
        """A fixed address, so that no peer keeps a stale ARP entry after a reboot."""
        return f"02:4c:53:00:00:{10 + self.number:02x}"


@dataclass(frozen=True)
class Lab:
    """The lab called ``name`` and the places of its files.

    ``state`` is its own folder; ``cache`` is shared by all labs of the machine.
    """

    name: str
    state: Path
    cache: Path

    @property
    def namespace(self) -> str:
        return f"lockstep-{self.name}"

    @property
    def runtime(self) -> Path:
        """Sockets and locks; named machine-wide like the namespace, whatever ``state`` is."""
        return Path("/run/lockstep-lab") / self.name

    @property
    def control_socket(self) -> Path:
        return self.runtime / "control.sock"

    @property
    def supervisor_lock(self) -> Path:
        return self.runtime / "supervisor.lock"

    @property
    def description(self) -> Path:
        return self.state / "lab.json"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def key(self) -> Path:
        return self.state / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.state / "ssh" / "known_hosts"

    def host_namespace(self, host: Host) -> str:
        """The host's network namespace. A lab's name has no dot, so no two labs meet."""
        return f"{self.namespace}.{host.name}"

    def host_folder(self, host: Host) -> Path:
        return self.state / "hosts" / host.name


def open_lab(name: str | None = None) -> Lab:
    """The lab called ``name``, else by ``LOCKSTEP_LAB``, else ``lab``; places from the environment.

    Raises ``LabError`` for a name that could not be part of a namespace or cgroup.
    """
    lab_name = name or os.environ.get("LOCKSTEP_LAB") or DEFAULT_NAME
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,23}", lab_name):
        raise LabError(
            f"lab name {lab_name!r}: expected at most 24 of a-z, 0-9 and '-', a letter first",
            "Choose another with --name or LOCKSTEP_LAB.",
        )
    state = Path(os.environ.get("LOCKSTEP_LAB_STATE") or "/var/lib/lockstep-lab")
    cache = Path(os.environ.get("LOCKSTEP_LAB_CACHE") or "/var/cache/lockstep-lab")
    return Lab(lab_name, state.absolute() / lab_name, cache.absolute())


def hosts(count: int) -> tuple[Host, ...]:
    """The first ``count`` hosts; ``LabError`` unless 1 to 16."""
    if not 1 <= count <= MOST_HOSTS:
        raise LabError(f"{count} hosts asked for; a lab has 1 to {MOST_HOSTS}")
    return tuple(Host(number) for number in range(1, count + 1))


def find_host(lab_hosts: tuple[Host, ...], name: str) -> Host:
    """The host called ``name``; ``LabError`` naming those that exist."""
    for host in lab_hosts:
        if host.name == name:
            return host
    raise LabError(
        f"no host {name!r} in this lab", f"Known: {', '.join(host.name for host in lab_hosts)}."
    )
