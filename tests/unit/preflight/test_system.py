"""Updates that would take apt's locks or the host, and an earlyoom that counts otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import findings, spark

from lockstep.core.findings import FATAL

ONCE = "nvidia-spark-run-apt-upgrade-once.service"


@pytest.mark.parametrize(
    ("once", "message", "remedy"),
    [
        (
            {},
            "has not run yet: at the next boot it upgrades all packages and reboots again",
            "`sudo reboot` now",
        ),
        (
            {"running": True},
            "upgrades all packages now and then reboots this host",
            "Wait until it has rebooted",
        ),
    ],
)
def test_the_one_shot_upgrade_that_runs_or_is_to_come_is_a_warning_with_its_reboot(
    once: dict[str, Any], message: str, remedy: str
) -> None:
    [finding] = findings(updates={"once": {"done": False, **once}})
    assert (finding.code, finding.severity) == ("upgrade-pending", "warning")
    assert finding.message == f"{ONCE} {message}"
    assert remedy in finding.remedy and '("upgrade-pending",)' in finding.remedy


@pytest.mark.parametrize(
    "once",
    [{"done": True}, *({"done": False, "state": state} for state in ("masked", "disabled", ""))],
)
def test_one_that_is_over_or_off_is_none(once: dict[str, Any]) -> None:
    assert findings(updates={"once": once}) == []


def test_services_that_use_apt_now_are_named() -> None:
    [finding] = findings(updates={"daily": ["apt-daily-upgrade.service"]})
    assert (finding.code, finding.severity) == ("apt-busy", "warning")
    assert finding.message == "apt-daily-upgrade.service uses apt now"


def test_who_has_apts_locks_is_named_once() -> None:
    remedy = "`sudo systemctl stop packagekit.service` frees the lock"
    holder = {"who": "/x/lock is held by packagekitd", "unit": "apt-daily.service"}
    update_facts = {"daily": ["apt-daily.service"], "holder": {**holder, "remedy": remedy}}
    [finding] = findings(updates=update_facts)
    assert (finding.code, finding.severity) == ("apt-busy", "warning")
    assert finding.message == "/x/lock is held by packagekitd"
    assert finding.remedy.startswith("Packages that are missing wait up to 30 min for each")
    assert finding.remedy.endswith(f"{remedy}.")


def test_half_installed_packages_of_others_are_an_error_that_nobody_can_waive() -> None:
    packages = {f"thunderbird-locale-{letter}": "unpacked" for letter in "abcdef"}
    [finding] = findings(unfinished=packages)
    assert (finding.code, finding.severity) == ("apt-broken", "error")
    assert finding.code in FATAL
    assert finding.message.endswith("thunderbird-locale-d (unpacked) and 2 more")
    assert "--fix-broken" in finding.remedy and "snaps" in finding.remedy


@pytest.mark.parametrize(
    ("version", "data", "codes"),
    [
        ("1.8-1", {}, ["earlyoom-late"]),
        ("1.8.2-1", {}, ["earlyoom-late"]),
        ("1.10.0-1ubuntu1", {}, ["earlyoom-late"]),
        ("1:2.0", {}, ["earlyoom-late"]),
        # DGX OS 7 has this one.
        ("1.7-2", {}, []),
        ("", {}, []),
        # Nobody asks for it.
        ("1.8.2-1", {"packages": ("git", "jq")}, []),
    ],
)
def test_an_earlyoom_that_counts_otherwise_is_a_warning(
    version: str, data: dict[str, Any], codes: list[str]
) -> None:
    assert [item.code for item in findings(spark(**data), earlyoom=version)] == codes
