"""Kernels and drivers that are known to be wrong: who is warned or refused, who is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a_spark import findings, spark

from lockstep.core.errors import CatalogueError
from lockstep.core.findings import Finding
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.preflight.known_bad import BadKernel, KnownBad, driver, kernel, load

# What NV-Kernels#591 and a second pair of Sparks showed.
SIGN = {"CmaTotal": 0, "CmaFree": 940604 * 1024}


def of_kernel(
    release: str, line: str = "ro quiet", rdma: bool = False, **cma: int
) -> list[Finding]:
    facts = {"release": release, "command_line": line, "cma": cma}
    return list(kernel("spark1", facts, rdma=rdma))


def of_driver(version: str = "", **gpu: str) -> list[Finding]:
    return list(driver("spark1", {"driver_version": version, **gpu}))


@pytest.mark.parametrize(
    "release", ["6.17.0-1031-nvidia", "6.18.44", "6.14.0-1015-nvidia", "7.1.0"]
)
def test_a_kernel_that_nobody_reported_is_no_finding(release: str) -> None:
    assert of_kernel(release, rdma=True) == []
    assert of_kernel(release, rdma=True, CmaTotal=32, CmaFree=32) == []


def test_a_kernel_that_was_reported_to_panic_is_a_warning() -> None:
    [finding] = of_kernel("6.17.0-1008-nvidia", rdma=True)
    assert (finding.code, finding.severity, finding.subject) == ("kernel", "warning", "spark1")
    assert finding.message == "kernel 6.17.0-1008-nvidia: it was reported to panic on a Spark"
    assert "DGX Dashboard" in finding.remedy


def test_kexec_handover_warns_and_refuses_a_cluster_with_rdma_until_it_is_off() -> None:
    [alone] = of_kernel("7.0.0-1019-nvidia")
    [member] = of_kernel("7.0.0-1019-nvidia", rdma=True)
    assert (alone.severity, member.severity) == ("warning", "error")
    assert "ibv_reg_mr" in member.message and "kho=off" in member.remedy
    assert of_kernel("7.0.0-1019-nvidia", "ro quiet kho=off", rdma=True) == []


def test_its_sign_tells_whatever_the_kernel_calls_itself() -> None:
    [finding] = of_kernel("7.2.0-own", "kho=off", rdma=True, **SIGN)
    assert finding.severity == "error"
    assert finding.message.endswith("its sign is there: CmaFree 919 MiB of CmaTotal 0 MiB")


@pytest.mark.parametrize("version", ["580.95.05", "580.142", "580.173.02", "580.178.04"])
def test_a_driver_that_others_serve_with_is_no_finding(version: str) -> None:
    assert of_driver(version) == []


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch NVML library version: 610.43"
GONE = "No devices were found"
BRANCH = "it is of no branch that DGX OS has (580)"


@pytest.mark.parametrize(
    ("version", "fault", "message", "cure"),
    [
        ("580.159.03", "", "engines were reported to die", "580.178.04"),
        ("575.57.08", "", BRANCH, ""),
        ("610.43.02", "", BRANCH, ""),
        ("590.48.01", "", "it is no driver of DGX OS", ""),
        ("595.71.05", "", "it is no driver of DGX OS", ""),
        ("", MISMATCH, "parts of a second driver", "Reboot. If it stays,"),
        ("", GONE, f"{GONE}; so it was where `apt upgrade` had", "which brings the firmware"),
    ],
)
def test_a_driver_that_is_known_to_be_wrong_is_named_with_its_cure(
    version: str, fault: str, message: str, cure: str
) -> None:
    [finding] = of_driver(version, **({"fault": fault} if fault else {}))
    kind = ("driver", "error") if fault else ("driver-version", "warning")
    assert (finding.code, finding.severity) == kind
    assert message in finding.message and version in finding.message
    assert cure in finding.remedy and finding.remedy


@pytest.mark.parametrize(
    ("entry", "text", "message"),
    [
        (BadKernel, "a: 7.0", "a must be a mapping"),
        (BadKernel, "a: {release: '7.0.', whatever: 1}", "unknown key 'whatever'"),
        (BadKernel, "a: {release: '7.0.'}", "a.fault, a.remedy, a.source, a.date are missing"),
        (
            BadKernel,
            "a: {release: '7', fault: x, remedy: y, source: z, date: 2026-11-22, breaks: usb}",
            "breaks is not known",
        ),
        (KnownBad, "a: {release: '580.', cure: kho=off}", "unknown key 'cure'"),
        (
            KnownBad,
            "a: {fault: x, remedy: y, source: z, date: 2026-11-22}",
            "a has neither release nor sign",
        ),
    ],
)
def test_a_wrong_entry_is_named(
    tmp_path: Path, entry: type[KnownBad], text: str, message: str
) -> None:
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(CatalogueError, match=message):
        load(tmp_path / "list.yaml", entry)


def test_preflight_looks_into_the_list_of_drivers() -> None:
    driver_findings = findings(gpu={"driver_version": "580.159.03"})
    assert [item.code for item in driver_findings] == ["driver-version"]


def member(number: int, **data: Any) -> HostPlan:
    return spark(
        f"spark-{number}",
        models={"glm": {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-glm", "cluster": "pair"}},
        clusters={"pair": {"hosts": ("spark-1", "spark-2")}},
        fabric_address=f"10.77.0.{number}",
        fabric={"interfaces": {"enp1s0f0np0": f"10.77.0.{number}/24"}},
        **data,
    )


def test_preflight_refuses_members_of_clusters_with_rdma_and_no_other_host() -> None:
    plan = next(iter(join_clusters([member(1), member(2)], "the inventory")))
    for host, severity in ((plan, "error"), (spark(), "warning")):
        kernel_findings = findings(host, kernel={"release": "7.0.0-1019-nvidia"}, lacking=[])
        assert [item.severity for item in kernel_findings] == [severity]


def test_an_answer_without_the_drivers_version_is_a_finding_with_its_remedy() -> None:
    [finding] = driver("spark1", {"name": "GB10"})
    assert (finding.code, finding.severity) == ("driver-version", "warning")
    assert "nvidia-smi" in finding.remedy
