"""Other services of a Spark use apt too: a deploy waits for them, and says for whom."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from stack import DeployResult, Host, Stack, until

MARK = "/var/lib/nvidia-spark-run-apt-upgrade-once/done"
# Stands in for a service that works for the Dashboard: apt and dpkg lock with fcntl.
APTD = """#!/usr/bin/python3
import fcntl, signal
held = [open(path, "w") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock")]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
open("/run/held", "w").close()
signal.pause()
"""
# As factory images have them: a part of a program that is not there yet, and a package that
# downloads a snap when it is configured.
PACKAGES = {
    "browser-locale-de": ("browser", ""),
    "desktop-snaps": ("", "touch /run/snapped; sleep 99"),
}


STATUS = "dpkg-query -W -f '${db:Status-Status}'"
DEAD = "http://10.77.0.1:3141/baseos/8"
SOURCE = "/etc/apt/sources.list.d/dgx.list"


@pytest.fixture(scope="module")
def waiting_deploy(stack: Stack, first: object) -> DeployResult:
    """A deploy to a host with four faults of apt.

    apt is in use, an earlier run of it was cut off, a source of packages is dead, and an upgrade of
    the vendor is still due.
    """
    host = stack.spark1
    host.root(
        "apt-get -qq -y remove jq; cd /var/tmp && apt-get -qq download jq && dpkg --unpack jq_*.deb"
    )
    # So it is where dpkg was killed: apt refuses to work until some dpkg has written.
    host.root(f"touch /var/lib/dpkg/updates/0000; rm -f /run/held {MARK}")
    host.root(f"echo 'deb [trusted=yes] {DEAD} ./' > {SOURCE}")
    host.root(f"echo {shlex.quote(APTD)} > /run/aptd; chmod 755 /run/aptd")
    host.root("mount -o remount,exec /run; systemd-run -q --collect --unit=aptd-stand-in /run/aptd")
    try:
        until(lambda: host.look("test -e /run/held").code == 0, "the locks are held")
        deploy = stack.start("-y", "--limit", host.name)
        wait_message = (
            "packages prepare: waited 0 s of 30 min, /var/lib/dpkg/lock-frontend is held by"
        )
        deploy.says(wait_message + r" aptd \(process \d+, aptd-stand-in\.service\)")
        host.root("systemctl stop aptd-stand-in")
        return deploy.end()
    finally:
        host.root("systemctl stop aptd-stand-in 2>/dev/null || true")
        host.root(f"touch {MARK}; rm -f {SOURCE} /var/tmp/jq_*.deb; apt-get -qq update")


def test_a_deploy_waits_for_apts_locks_and_names_who_has_them(waiting_deploy: DeployResult) -> None:
    assert waiting_deploy.code == 0, waiting_deploy.output[-6000:]
    output = " ".join(waiting_deploy.output.split())
    assert "spark1 warning apt-busy: /var/lib/dpkg/lock-frontend is held by aptd" in output
    assert "`sudo systemctl stop aptd-stand-in.service` frees the lock" in output


def test_what_a_cut_off_run_left_is_finished_though_a_source_of_apt_is_dead(
    waiting_deploy: DeployResult, lab_host: Host
) -> None:
    assert "Base | Install packages" in waiting_deploy.changed_operations
    assert lab_host.root(f"{STATUS} jq") == "installed"
    assert (
        f"warning: a source of apt fails: Failed to fetch {DEAD}/./Packages"
        in waiting_deploy.output
    )
    # It is in the last lines too, with the file; what was to come has come.
    closing = " ".join(waiting_deploy.output.partition("Note:")[2].split())
    assert f"{lab_host.name}: warning: a source of apt fails: Failed to fetch {DEAD}" in closing
    assert f"It stands in {SOURCE}: correct the source" in closing
    record = json.loads(lab_host.root("cat /var/lib/lockstep-deploy/packages.json"))
    assert record["coming"] == []


def test_the_one_shot_upgrade_that_is_to_come_is_warned_of(waiting_deploy: DeployResult) -> None:
    rows = [
        line.split() for line in waiting_deploy.output.splitlines() if "upgrade-pending:" in line
    ]
    assert [row[:2] for row in rows] == [["spark1", "warning"]]


@pytest.fixture
def wedged_host(deployed_stack: Stack) -> Iterator[Host]:
    """A host that lacks jq, and has two unpacked, unconfigured packages of others."""
    host = deployed_stack.spark1
    host.root("apt-get -qq -y remove jq; rm -f /run/snapped")
    for name, (needs, then) in PACKAGES.items():
        control = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
        control += f"Depends: {needs}\n" if needs else ""
        folder = f"/var/tmp/{name}"
        host.root(
            f"mkdir -p {folder}/DEBIAN; cd {folder}; echo {shlex.quote(control.strip())}"
            f" > DEBIAN/control; printf '#!/bin/sh\\n{then}\\n' > DEBIAN/postinst;"
            f" chmod 755 DEBIAN/postinst; dpkg-deb --build {folder} {folder}.deb;"
            f" dpkg --unpack {folder}.deb"
        )
    yield host
    host.root(f"dpkg --purge {' '.join(PACKAGES)}; rm -rf /var/tmp/browser* /var/tmp/desktop*")


def test_packages_of_others_that_are_half_installed_are_named_and_left(
    deployed_stack: Stack, wedged_host: Host
) -> None:
    """The upgrade of the vendor's is done by then, and nobody is warned of it."""
    result = deployed_stack.deploy("-y", "--limit", wedged_host.name)
    output = " ".join(result.output.split())
    assert result.code == 1, output[-3000:]
    assert f"{wedged_host.name} error apt-broken: packages are missing" in output
    assert "browser-locale-de (unpacked; Depends: browser" in output
    assert "desktop-snaps (unpacked)" in output and "apt-get install --fix-broken" in output
    assert "Beginning operation run" not in result.output
    assert "upgrade-pending" not in result.output
    assert (
        wedged_host.root(f"{STATUS} desktop-snaps; ls /run | grep -c snapped || true")
        == "unpacked0\n"
    )
