"""The version of DGX OS: the last update counts, for preflight and for `lockstep diff` alike."""

from __future__ import annotations

import pytest
from a_snapshot import diff_report, host, perfect, snapshot_copy
from a_spark import findings, spark

from lockstep.drift.report import Report
from lockstep.onhost.facts import machine, reader_helpers
from lockstep.preflight import dgx_os

FACTORY = """\
DGX_NAME="DGX Spark"
DGX_PRETTY_NAME="NVIDIA DGX Spark"
DGX_SWBUILD_DATE="2025-09-10-13-50-03"
DGX_SWBUILD_VERSION="7.2.3"
DGX_COMMIT_ID="833b4a7"
DGX_PLATFORM="DGX Server for KVM"
DGX_SERIAL_NUMBER="1234567890123"
"""
# As each update from the Dashboard appends them.
UPDATES = """
DGX_OTA_VERSION="7.3.1"
DGX_OTA_DATE="Tue Mar 31 09:06:56 AM PDT 2026"

DGX_OTA_VERSION="7.5.0"
DGX_OTA_DATE="Wed Jul 15 09:06:56 AM PDT 2026"
"""
FILES = {"7.2.3": FACTORY, "7.5.0": FACTORY + UPDATES}


def of_diff(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The facts of such a file."""
    monkeypatch.setattr(reader_helpers, "text", {"/etc/dgx-release": text}.get)
    facts: dict[str, dict[str, str]] = {}
    for kind, item, value in machine.software_releases({"key": ""}):
        facts.setdefault(kind, {})[item] = str(value)
    return facts


@pytest.mark.parametrize("version", FILES)
def test_the_last_update_counts_for_every_reader(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    for release in (of_diff(FILES[version], monkeypatch)["DGX OS"], machine.dgx_release()):
        assert release[dgx_os.deciding(release)] == version


def test_an_updated_spark_is_judged_by_its_last_update_and_not_by_its_factory() -> None:
    plan = spark(expected={"dgx_os": ">=7.5"})
    assert findings(plan, dgx={dgx_os.UPDATED: "7.5.0"}) == []
    [finding] = findings(plan, dgx={dgx_os.UPDATED: "7.3.1"})
    assert finding.message == "DGX OS 7.3.1 (7.2.3 from the factory), expected >=7.5"
    state = host(expected={"dgx_os": ">=7.5"})
    for version, expected_items in (("7.5.0", []), ("7.3.1", [dgx_os.UPDATED])):
        snapshot = snapshot_copy(perfect(state))
        snapshot["facts"]["DGX OS"] = {dgx_os.FACTORY: "7.2.3", dgx_os.UPDATED: version}
        assert items(diff_report((state, snapshot))) == expected_items


def test_factories_of_updated_peers_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = []
    for name, factory in (("spark1", "7.2.3"), ("spark2", "7.4.0")):
        state = host(name)
        snapshot = perfect(state)
        facts = of_diff(FILES["7.5.0"].replace("7.2.3", factory), monkeypatch)
        snapshot["facts"] |= {kind: facts[kind] for kind in ("DGX OS", "DGX factory")}
        snapshots.append((state, snapshot))
    assert items(diff_report(*snapshots)) == []


def items(report: Report) -> list[str]:
    """The differing items."""
    return [difference.item for difference in report.differences]
