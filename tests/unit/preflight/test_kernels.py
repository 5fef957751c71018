"""Kernels that are known to be wrong: who is warned, who is refused, and who is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.errors import CatalogueError
from lockstep.core.findings import Finding
from lockstep.fit.catalogue import FOLDER
from lockstep.inventory.cluster_join import joined
from lockstep.inventory.host import HostPlan
from lockstep.preflight.kernels import findings, load

BAD = load(FOLDER)
# What NV-Kernels#591 and a second pair of Sparks showed.
SIGN = {"CmaTotal": 0, "CmaFree": 940604 * 1024}


def judged(release: str, line: str = "ro quiet", rdma: bool = False, **cma: int) -> list[Finding]:
    facts = {"release": release, "command_line": line, "cma": cma}
    return list(findings("spark1", facts, BAD, rdma=rdma))


@pytest.mark.parametrize(
    "release", ["6.17.0-1031-nvidia", "6.18.44", "6.14.0-1015-nvidia", "7.1.0"]
)
def test_a_kernel_that_nobody_reported_is_no_finding(release: str) -> None:
    assert judged(release, rdma=True) == []
    assert judged(release, rdma=True, CmaTotal=32, CmaFree=32) == []


def test_a_kernel_that_was_reported_to_panic_is_a_warning() -> None:
    [finding] = judged("6.17.0-1008-nvidia", rdma=True)
    assert (finding.code, finding.severity, finding.subject) == ("kernel", "warning", "spark1")
    assert finding.message == "kernel 6.17.0-1008-nvidia: it was reported to panic on a Spark"
    assert "DGX Dashboard" in finding.remedy


def test_kexec_handover_warns_and_refuses_a_cluster_with_rdma_until_it_is_off() -> None:
    [alone] = judged("7.0.0-1019-nvidia")
    [member] = judged("7.0.0-1019-nvidia", rdma=True)
    assert (alone.severity, member.severity) == ("warning", "error")
    assert "ibv_reg_mr" in member.message and "kho=off" in member.remedy
    assert judged("7.0.0-1019-nvidia", "ro quiet kho=off", rdma=True) == []


def test_its_sign_tells_whatever_the_kernel_calls_itself() -> None:
    [finding] = judged("7.2.0-own", "kho=off", rdma=True, **SIGN)
    assert finding.severity == "error"
    assert finding.message.endswith("its sign is there: CmaFree 919 MiB of CmaTotal 0 MiB")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 7.0", "a must be a mapping"),
        ("a: {release: '7.0.', whatever: 1}", "unknown key 'whatever'"),
        ("a: {release: '7.0.'}", "a.what, a.remedy, a.source, a.date are missing"),
        (
            "a: {release: '7', what: x, remedy: y, source: z, date: 2026-11-22, breaks: usb}",
            "breaks is not known",
        ),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "kernels.yaml").write_text(text)
    with pytest.raises(CatalogueError, match=said):
        load(tmp_path)


def seen(plan: HostPlan, **facts: Any) -> list[Finding]:
    answer = healthy(plan, 1000.0)
    answer["kernel"] |= facts
    answer["lacking"] = []
    return preflight.findings(plan, pins_for(plan), answer, now=1000.0)


def member(number: int, **data: Any) -> HostPlan:
    return spark(
        f"spark-{number}",
        targets={"glm": {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-glm", "cluster": "pair"}},
        clusters={"pair": {"hosts": ("spark-1", "spark-2")}},
        fabric_address=f"10.77.0.{number}",
        fabric={"interfaces": {"enp1s0f0np0": f"10.77.0.{number}/24"}},
        **data,
    )


def test_preflight_refuses_members_of_clusters_with_rdma_and_no_other_host() -> None:
    plan = next(iter(joined([member(1), member(2)], "the inventory")))
    assert [item.severity for item in seen(plan, release="7.0.0-1019-nvidia")] == ["error"]
    assert [item.severity for item in seen(spark(), release="7.0.0-1019-nvidia")] == ["warning"]
