"""Drift of the machine: kernel, firmware, driver, DGX OS, CUDA, memory, disks, clock."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import machine
from lockstep.preflight import dgx_os
from lockstep.preflight.hardware import is_toolkit
from lockstep.resources.fact_comparison import (
    DriftRow,
    Expectation,
    How,
    Kind,
    SubjectView,
    any_value,
)

_PENDING = "reboot pending"


def _how(row: DriftRow) -> How:
    return "reboot" if row.item == _PENDING else "by hand"


def _boot(row: DriftRow) -> tuple[str, ...]:
    return ("systemctl", "reboot") if row.item == _PENDING else ()


def _cdi(row: DriftRow) -> tuple[str, ...]:
    """Return the command with which NVIDIA's toolkit writes the file for the present driver."""
    if not row.item.startswith("/etc/"):
        return ("systemctl", "restart", "nvidia-cdi-refresh")
    return ("nvidia-ctk", "cdi", "generate", f"--output={row.item}")


KINDS = {
    "kernel": Kind(machine.kernel, "warning", _how, _boot),
    "firmware": Kind(machine.firmware),
    "driver": Kind(machine.driver, "error", "reboot"),
    "DGX OS": Kind(machine.software_releases),
    "CUDA": Kind(machine.software_releases, "error", is_sealed=True),
    "CDI": Kind(machine.driver, is_sealed=True),
    "CDI driver": Kind(machine.driver, "error", mend=_cdi, scope="nothing"),
    "memory": Kind(machine.memory_and_mounts),
    "mount": Kind(machine.memory_and_mounts),
    "clock": Kind(machine.time_and_zone),
    # Derived from the time on the host, and from the time of the question.
    "clock offset": Kind(
        machine.time_and_zone, "error", mend="timedatectl set-ntp true", scope="nothing"
    ),
}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    expected_machine, facts = desired_state.plan.settings.expected, host_view.facts
    yield Expectation("kernel", "architecture", expected_machine.architecture)
    yield Expectation("kernel", _PENDING, "no")
    if expected_machine.dgx_os:
        text = f"DGX OS {expected_machine.dgx_os}"
        key = dgx_os.deciding(facts.get("DGX OS", {}))
        yield Expectation(
            "DGX OS",
            key,
            text,
            lambda found_version: dgx_os.matches(found_version, expected_machine.dgx_os),
        )
    toolkit = expected_machine.cuda_toolkit
    yield Expectation(
        "CUDA", "nvcc", toolkit, lambda found_version: is_toolkit(found_version, toolkit)
    )
    yield any_value("CUDA", "ptxas")
    yield Expectation("driver", "nvidia-smi", "answers")
    yield Expectation(
        "driver", "compute capability", expected_machine.compute_capability, if_there=True
    )
    # These must agree with the driver of the same host.
    version = facts.get("driver", {}).get("version")
    if version:
        yield Expectation("driver", "loaded module", version, if_there=True)
        for path in facts.get("CDI driver", {}):
            yield Expectation(
                "CDI driver", path, version, lambda found_version: found_version == machine.UNTOLD
            )
    least = expected_machine.memory_gib
    yield Expectation(
        "memory",
        "MemTotal GiB",
        f"{least} or more",
        lambda found_version: _number(found_version) >= least,
    )
    most = expected_machine.clock_skew_s
    yield Expectation(
        "clock offset",
        "seconds",
        f"at most {most:.0f}",
        lambda found_version: abs(_number(found_version)) <= most,
    )


def _number(text: str) -> float:
    """Return the number at the beginning of a fact, or NaN if there is none."""
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return math.nan
