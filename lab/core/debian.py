"""Debian on this machine: the archive of its packages, and installing those that the lab needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable

from lab.core.errors import LabError
from lab.core.run import run

#: Program that the lab runs → the package that has it.
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "dpkg-scanpackages": "dpkg-dev",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "git": "git",
    "skopeo": "skopeo",
    "docker-registry": "docker-registry",
}
_REFRESH = threading.Lock()  # parts are built side by side, and apt refuses a second refresh
#: apt settings of the machine that its mirror may need: proxies, time-outs, checks.
_KEPT_SETTINGS = re.compile(r"Acquire::(https?|Retries|Check-|Languages|ForceIPv)")


def missing_packages() -> list[str]:
    """Debian packages that the lab needs and this machine lacks."""
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})


def install(packages: list[str], report: Callable[[str], None]) -> None:
    """Install ``packages`` with apt-get, refreshing its lists first.

    Raises ``LabError`` naming the packages when apt-get is absent or fails.
    """
    by_hand = f"Install by hand: apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise LabError(f"packages are missing and there is no apt-get: {packages}", by_hand)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    steps = (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    )
    for step in steps:
        report(" ".join(step[:2]))
        result = subprocess.run(step, env=environment, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            reason = " / ".join((result.stderr or result.stdout).strip().splitlines()[-3:])
            raise LabError(f"{' '.join(step[:2])} failed: {reason}", by_hand)
    if "docker-registry" in packages:
        # Debian starts the service for the whole machine; the lab runs its own, in its own network.
        run(["systemctl", "disable", "--now", "docker-registry.service"], check=False)


def mirror() -> str:
    """Base address of the Debian archive that this machine's own apt uses.

    Refreshes apt's lists where there are none, as in a container image that was cleaned.
    """
    layout = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    command = ["apt-get", "indextargets", "--format", layout, "Created-By: Packages"]
    with _REFRESH:
        mirror_url = parse_mirror(run(command))
        if mirror_url is None:
            run(["apt-get", "update", "-q"])
            mirror_url = parse_mirror(run(command))
    if mirror_url is None:
        raise LabError(
            "this machine's apt knows no Debian archive (Origin and Label 'Debian')",
            "Name one in /etc/apt: the lab takes its mirror from there.",
        )
    return mirror_url


def parse_mirror(targets: str) -> str | None:
    """First Debian main archive among lines of ``origin|label|component|address``."""
    for line in targets.splitlines():
        origin, label, component, address = line.split("|")
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return address.rstrip("/")
    return None


def kept_settings() -> list[str]:
    """Settings of this machine's apt that reaching its mirror may need, as apt.conf lines."""
    return parse_settings(run(["apt-config", "dump"]))


def parse_settings(dump: str) -> list[str]:
    """The kept ones among the lines of ``apt-config dump``, empty values left out."""
    return [
        line
        for line in dump.splitlines()
        if _KEPT_SETTINGS.match(line) and not line.endswith(' "";')
    ]
