"""Other services of a Spark use apt too: a deploy waits for them, and says for whom."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from stack import Deployed, Host, Stack, until

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
def waited(stack: Stack, first: Deployed) -> Deployed:
    """A deploy to a host whose apt is in use, that a run of apt was cut off on, with a source of
    packages that is dead and an upgrade of the vendor's still to come."""
    assert first.code == 0, first.output[-8000:]
    one = stack.one
    one.root(
        "apt-get -qq -y remove jq; cd /var/tmp && apt-get -qq download jq && dpkg --unpack jq_*.deb"
    )
    # So it is where dpkg was killed: apt refuses to work until some dpkg has written.
    one.root(f"touch /var/lib/dpkg/updates/0000; rm -f /run/held {MARK}")
    one.root(f"echo 'deb [trusted=yes] {DEAD} ./' > {SOURCE}")
    one.root(f"echo {shlex.quote(APTD)} > /run/aptd; chmod 755 /run/aptd")
    one.root("mount -o remount,exec /run; systemd-run -q --collect --unit=aptd-stand-in /run/aptd")
    try:
        until(lambda: one.look("test -e /run/held").code == 0, "the locks are held")
        deploy = stack.start("-y", "--limit", one.name)
        held = "packages prepare: waited 0 s of 30 min, /var/lib/dpkg/lock-frontend is held by"
        deploy.says(held + r" aptd \(process \d+, aptd-stand-in\.service\)")
        one.root("systemctl stop aptd-stand-in")
        return deploy.end()
    finally:
        one.root("systemctl stop aptd-stand-in 2>/dev/null || true")
        one.root(f"touch {MARK}; rm -f {SOURCE} /var/tmp/jq_*.deb; apt-get -qq update")


def test_a_deploy_waits_for_apts_locks_and_names_who_has_them(waited: Deployed) -> None:
    assert waited.code == 0, waited.output[-6000:]
    said = " ".join(waited.output.split())
    assert "spark1 warning apt-busy: /var/lib/dpkg/lock-frontend is held by aptd" in said
    assert "`sudo systemctl stop aptd-stand-in.service` frees the lock" in said


def test_what_a_cut_off_run_left_is_finished_though_a_source_of_apt_is_dead(
    waited: Deployed, one: Host
) -> None:
    assert "Base | Install packages" in waited.changed
    assert one.root(f"{STATUS} jq") == "installed"
    assert f"warning: a source of apt fails: Failed to fetch {DEAD}/./Packages" in waited.output
    # It is in the last lines too, with the file; what was to come has come.
    closing = " ".join(waited.output.partition("Note:")[2].split())
    assert f"{one.name}: warning: a source of apt fails: Failed to fetch {DEAD}" in closing
    assert f"It stands in {SOURCE}: correct the source" in closing
    record = json.loads(one.root("cat /var/lib/lockstep-deploy/packages.json"))
    assert record["coming"] == []


def test_the_one_shot_upgrade_that_is_to_come_is_warned_of(waited: Deployed) -> None:
    rows = [line.split() for line in waited.output.splitlines() if "upgrade-pending:" in line]
    assert [row[:2] for row in rows] == [["spark1", "warning"]]


@pytest.fixture
def wedged(deployed: Stack) -> Iterator[Host]:
    """A host that lacks jq, and on which two packages of others are unpacked and no more."""
    one = deployed.one
    one.root("apt-get -qq -y remove jq; rm -f /run/snapped")
    for name, (needs, then) in PACKAGES.items():
        control = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
        control += f"Depends: {needs}\n" if needs else ""
        folder = f"/var/tmp/{name}"
        one.root(
            f"mkdir -p {folder}/DEBIAN; cd {folder}; echo {shlex.quote(control.strip())}"
            f" > DEBIAN/control; printf '#!/bin/sh\\n{then}\\n' > DEBIAN/postinst;"
            f" chmod 755 DEBIAN/postinst; dpkg-deb --build {folder} {folder}.deb;"
            f" dpkg --unpack {folder}.deb"
        )
    yield one
    one.root(f"dpkg --purge {' '.join(PACKAGES)}; rm -rf /var/tmp/browser* /var/tmp/desktop*")


def test_packages_of_others_that_are_half_installed_are_named_and_left(
    deployed: Stack, wedged: Host
) -> None:
    """The upgrade of the vendor's is done by then, and nobody is warned of it."""
    done = deployed.deploy("-y", "--limit", wedged.name)
    said = " ".join(done.output.split())
    assert done.code == 1, said[-3000:]
    assert f"{wedged.name} error apt-broken: packages are missing" in said
    assert "browser-locale-de (unpacked; Depends: browser" in said
    assert "desktop-snaps (unpacked)" in said and "apt-get install --fix-broken" in said
    assert "Beginning operation run" not in done.output
    assert "upgrade-pending" not in done.output
    assert (
        wedged.root(f"{STATUS} desktop-snaps; ls /run | grep -c snapped || true") == "unpacked0\n"
    )
