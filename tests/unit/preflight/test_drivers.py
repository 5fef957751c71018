"""Drivers that are known to be wrong: warned of by version, explained where there is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.errors import CatalogueError
from lockstep.core.findings import Finding
from lockstep.fit.catalogue import FOLDER
from lockstep.preflight.drivers import findings, load

BAD = load(FOLDER)


def judged(version: str = "", **gpu: str) -> list[Finding]:
    return list(findings("spark1", {"driver_version": version, **gpu}, BAD))


@pytest.mark.parametrize("version", ["580.95.05", "580.142", "580.173.02", "580.178.04"])
def test_a_driver_that_others_serve_with_is_no_finding(version: str) -> None:
    assert judged(version) == []


def test_the_driver_under_which_engines_die_is_a_warning_with_the_cure() -> None:
    [finding] = judged("580.159.03")
    assert (finding.code, finding.severity, finding.subject) == (
        "driver-version",
        "warning",
        "spark1",
    )
    assert finding.message.startswith("driver 580.159.03: engines were reported to die")
    assert "cudaErrorNotPermitted" in finding.message and "580.178.04" in finding.remedy


@pytest.mark.parametrize("version", ["590.48.01", "595.71.05"])
def test_branches_that_dgx_os_does_not_have_are_warned_of(version: str) -> None:
    [finding] = judged(version)
    assert finding.message.startswith(f"driver {version}: it is no driver of DGX OS")


def test_no_device_after_half_an_update_is_explained() -> None:
    [finding] = judged(fault="No devices were found")
    assert (finding.code, finding.severity) == ("driver", "error")
    assert finding.message.startswith(
        "the driver does not answer: No devices were found; so it was where `apt upgrade` had"
    )
    assert "which brings the firmware" in finding.remedy


def test_another_fault_is_told_as_it_is() -> None:
    [finding] = judged(fault="Driver/library version mismatch")
    assert finding.message == "the driver does not answer: Driver/library version mismatch"
    assert finding.remedy.startswith("Reboot;")


def test_preflight_looks_into_the_list() -> None:
    plan = spark()
    facts = healthy(plan, 1000.0)
    facts["gpu"]["driver_version"] = "580.159.03"
    found = preflight.findings(plan, pins_for(plan), facts, now=1000.0)
    assert [item.code for item in found] == ["driver-version"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {release: '580.', cure: kho=off}", "unknown key 'cure'"),
        ("a: {what: x}", "a.remedy, a.source, a.date are missing"),
        (
            "a: {what: x, remedy: y, source: z, date: 2026-11-22}",
            "a has neither release nor sign",
        ),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "drivers.yaml").write_text(text)
    with pytest.raises(CatalogueError, match=said):
        load(tmp_path)
