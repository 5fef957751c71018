"""Updates that would take apt's locks or the host, and an earlyoom that counts otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.findings import Finding

PLAN = spark()
ONCE = "nvidia-spark-run-apt-upgrade-once.service"


def found(once: dict[str, Any], daily: tuple[str, ...] = ()) -> list[Finding]:
    facts = healthy(PLAN, 1000.0)
    facts["updates"]["once"] |= once
    facts["updates"]["daily"] = list(daily)
    return preflight.findings(PLAN, pins_for(PLAN), facts, now=1000.0)


def test_the_one_shot_upgrade_that_is_to_come_is_a_warning_with_its_reboot() -> None:
    [finding] = found({"done": False})
    assert (finding.code, finding.severity) == ("upgrade-pending", "warning")
    assert finding.message == (
        f"{ONCE} has not run yet: at the next boot it upgrades all packages and reboots again"
    )
    assert "sudo reboot" in finding.remedy and '("upgrade-pending",)' in finding.remedy


def test_one_that_runs_now_is_waited_for() -> None:
    [finding] = found({"done": False, "running": True})
    assert (finding.code, finding.severity) == ("upgrade-pending", "warning")
    assert "upgrades all packages now and then reboots this host" in finding.message


@pytest.mark.parametrize(
    "once",
    [
        {"done": True},
        *({"done": False, "state": state} for state in ("masked", "disabled", "")),
    ],
)
def test_one_that_is_over_or_off_is_none(once: dict[str, Any]) -> None:
    assert found(once) == []


def test_services_that_use_apt_now_are_named() -> None:
    [finding] = found({}, ("apt-daily-upgrade.service",))
    assert (finding.code, finding.severity) == ("apt-busy", "warning")
    assert finding.message == "apt-daily-upgrade.service uses apt now"


def of_earlyoom(version: str, **data: object) -> list[str]:
    plan = spark(**data)
    facts = healthy(plan, 1000.0) | {"earlyoom": version}
    found = preflight.findings(plan, pins_for(plan), facts, now=1000.0)
    return [item.code for item in found]


@pytest.mark.parametrize("version", ["1.8-1", "1.8.2-1", "1.10.0-1ubuntu1", "1:2.0"])
def test_an_earlyoom_that_counts_otherwise_is_a_warning(version: str) -> None:
    assert of_earlyoom(version) == ["earlyoom-late"]


@pytest.mark.parametrize("version", ["1.7-2", ""])
def test_earlyoom_of_dgx_os_7_is_none_and_an_unknown_one(version: str) -> None:
    assert of_earlyoom(version) == []


def test_an_earlyoom_that_nobody_asks_for_is_none() -> None:
    assert of_earlyoom("1.8.2-1", packages=("git", "jq")) == []
