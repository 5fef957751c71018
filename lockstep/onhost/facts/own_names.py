"""Which words name this host and the people on it. They are taken out of what is sent on, and
never a part of it.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

from lockstep.onhost.facts.reading import listed, run, text

_SERIALS = (
    *("product_serial", "board_serial", "chassis_serial", "product_uuid"),
    *("board_asset_tag", "chassis_asset_tag"),
)
# Accounts of people, as Debian and Ubuntu number them.
_PEOPLE = range(1000, 60000)


def read(_: object) -> dict[str, list[Any]]:
    """Names of the machine and its network, accounts with the people's names, serial numbers."""
    return {
        "hosts": [os.uname().nodename, *_pretty(), *_neighbours()],
        "accounts": _accounts(),
        "domains": _domains(),
        "serials": _serials(),
    }


def _pretty() -> list[str]:
    lines = (text("/etc/machine-info") or "").splitlines()
    pairs = [line.partition("=") for line in lines]
    return [value.strip("\"'") for key, _, value in pairs if key == "PRETTY_HOSTNAME"]


def _neighbours() -> list[str]:
    """Names in /etc/hosts, of this machine and of others."""
    lines = [line.partition("#")[0].split() for line in (text("/etc/hosts") or "").splitlines()]
    return [name for words in lines for name in words[1:]]


def _accounts() -> list[list[str]]:
    """Every name of each person: account, full name, folder."""
    every = [
        [entry.pw_name, entry.pw_gecos.partition(",")[0], os.path.basename(entry.pw_dir)]
        for entry in pwd.getpwall()
        if entry.pw_uid in _PEOPLE
    ]
    homes = [[os.path.basename(path)] for path in listed("/home")]
    # An account of a directory is in no file here.
    asking = [[os.environ["SUDO_USER"]]] if os.environ.get("SUDO_USER") else []
    return [*every, *homes, *asking]


def _domains() -> list[str]:
    lines = [line.split() for line in (text("/etc/resolv.conf") or "").splitlines()]
    return [word for words in lines if words[:1] in (["search"], ["domain"]) for word in words[1:]]


def _serials() -> list[str]:
    found = [text(f"/sys/class/dmi/id/{name}") for name in _SERIALS]
    found += [text(f"{path}/serial") for path in listed("/sys/class/nvme")]
    found += [
        line.partition("=")[2].strip('"')
        for line in (text("/etc/dgx-release") or "").splitlines()
        if "SERIAL" in line.partition("=")[0]
    ]
    smi = run("nvidia-smi", "--query-gpu=serial", "--format=csv,noheader")
    return [each for each in [*found, *smi.stdout.splitlines()] if each]
