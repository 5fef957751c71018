"""Drift of the machine: kernel, firmware, driver, DGX OS, CUDA, memory, disks, clock."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lockstep.drift.subjects.kind import Expectation, How, Kind, Row, Seen, there
from lockstep.host.intended import Intended
from lockstep.onhost.facts import machine
from lockstep.preflight import dgx_os
from lockstep.preflight.hardware import is_toolkit

_PENDING = "reboot pending"


def _how(row: Row) -> How:
    return "reboot" if row.item == _PENDING else "by hand"


def _boot(row: Row) -> tuple[str, ...]:
    return ("systemctl", "reboot") if row.item == _PENDING else ()


def _cdi(row: Row) -> tuple[str, ...]:
    """Let NVIDIA's toolkit write the file for the driver that is there."""
    if not row.item.startswith("/etc/"):
        return ("systemctl", "restart", "nvidia-cdi-refresh")
    return ("nvidia-ctk", "cdi", "generate", f"--output={row.item}")


KINDS = {
    "kernel": Kind(machine.kernel, "warning", _how, _boot),
    "firmware": Kind(machine.firmware),
    "driver": Kind(machine.driver, "error", "reboot"),
    "DGX OS": Kind(machine.system),
    "CUDA": Kind(machine.system, "error", sealed=True),
    "CDI": Kind(machine.driver, sealed=True),
    "CDI driver": Kind(machine.driver, "error", mend=_cdi, scope="nothing"),
    "memory": Kind(machine.memory),
    "mount": Kind(machine.memory),
    "clock": Kind(machine.clock),
    # Made of the time there, and of when it was asked.
    "clock offset": Kind(machine.clock, "error", mend="timedatectl set-ntp true", scope="nothing"),
}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    wanted, facts = this.plan.settings.expected, seen.facts
    yield Expectation("kernel", "architecture", wanted.architecture)
    yield Expectation("kernel", _PENDING, "no")
    if wanted.dgx_os:
        text = f"DGX OS {wanted.dgx_os}"
        key = dgx_os.deciding(facts.get("DGX OS", {}))
        yield Expectation("DGX OS", key, text, lambda found: dgx_os.matches(found, wanted.dgx_os))
    toolkit = wanted.cuda_toolkit
    yield Expectation("CUDA", "nvcc", toolkit, lambda found: is_toolkit(found, toolkit))
    yield there("CUDA", "ptxas")
    yield Expectation("driver", "nvidia-smi", "answers")
    yield Expectation("driver", "compute capability", wanted.compute_capability, if_there=True)
    # What must agree with the driver of the same host.
    version = facts.get("driver", {}).get("version")
    if version:
        yield Expectation("driver", "loaded module", version, if_there=True)
        for path in facts.get("CDI driver", {}):
            yield Expectation("CDI driver", path, version, lambda found: found == machine.UNTOLD)
    least = wanted.memory_gib
    yield Expectation(
        "memory", "MemTotal GiB", f"{least} or more", lambda found: _number(found) >= least
    )
    most = wanted.clock_skew_s
    yield Expectation(
        "clock offset", "seconds", f"at most {most:.0f}", lambda found: abs(_number(found)) <= most
    )


def _number(found: str) -> float:
    """The number at the beginning of a fact; not a number where there is none."""
    try:
        return float(found.partition(" ")[0])
    except ValueError:
        return math.nan
