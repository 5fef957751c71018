"""The whole snapshot of one host: every reader, several at a time, as one document.

A reader that fails names its part in `faults`: what was compared without it would be a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.snapshot import (
    accounts,
    docker_state,
    files,
    machine,
    network,
    packages,
    units,
    venvs,
    weights,
)
from lockstep.snapshot.collected import Collected, Unreadable

Reader = Callable[[Collected], None]
Readers = dict[str, tuple[Reader, tuple[str, ...]]]

#: Part of the host → its reader and the kinds of facts that it finds. Those that wait for other
#: programs come first.
READERS: Readers = {
    "driver": (machine.driver, ("driver", "CDI", "CDI driver")),
    "units": (
        units.units,
        (
            *("unit", "unit path", "boot", "running", "generation", "unread unit", "drop-in"),
            *("system service", "older process"),
        ),
    ),
    "what starts at boot": (units.boot, ("service",)),
    "failed units": (units.failed, ("failed unit",)),
    "packages": (packages.packages, ("apt package", "apt state", "apt hold")),
    "Docker": (
        docker_state.daemon,
        ("docker", "image", "other image", "restart policy", "other container", "volume"),
    ),
    "engine": (venvs.engine, ("engine", "checkout", "image answer")),
    "venvs": (
        venvs.installed,
        ("engine package", "tools package", "tools", "changed package file"),
    ),
    "DGX OS and CUDA": (machine.system, ("DGX OS", "CUDA")),
    "firewall": (network.firewall, ("firewall",)),
    "sockets": (network.sockets, ("socket", "exposed port")),
    "kernel": (machine.kernel, ("kernel",)),
    "firmware": (machine.firmware, ("firmware",)),
    "memory and disks": (machine.memory, ("memory", "mount")),
    "clock": (machine.clock, ("clock", "clock offset")),
    "sysctls": (machine.settings, ("sysctl",)),
    "alternatives": (packages.alternatives, ("alternative",)),
    "accounts": (
        accounts.accounts,
        (
            *("account", "account home", "account shell", "group", "member", "right"),
            *("password", "login key"),
        ),
    ),
    "the deploy's files": (files.managed, ("file", "file mode", "folder")),
    "leftovers": (files.leftovers, ("leftover", "script", "foreign file")),
    "settings": (files.settings, ("setting", "setting mode", "link")),
    "secrets": (
        files.secrets,
        ("secret", "secret entry", "cluster key", "hub token", "hub token mode"),
    ),
    "network": (network.interfaces, ("network",)),
    "weights": (weights.weights, ("weights", "weights owner", "weights content", "other weights")),
}
_AT_ONCE = 6


def take(asked: dict[str, Any], readers: Readers | None = None) -> dict[str, Any]:
    """The snapshot that `asked` describes: {"facts", "faults", "unknown", "records"}.

    `unknown` lists the kinds of facts that cannot be compared, because a reader failed.

    Args:
        asked: The question.
        readers: What to read; None: everything that `lockstep diff` compares.
    """
    readers = READERS if readers is None else readers
    found = Collected(asked)

    def read(name: str) -> None:
        try:
            readers[name][0](found)
        except Unreadable as fault:
            found.faults[name] = str(fault)
        except Exception as fault:
            # Whatever a host holds that no reader expected: this part is not known.
            found.faults[name] = f"{type(fault).__name__}: {fault}"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(read, readers))
    unknown = sorted({kind for name in found.faults for kind in readers[name][1]})
    return {
        "facts": found.facts,
        "faults": found.faults,
        "unknown": unknown,
        "records": found.records,
    }
