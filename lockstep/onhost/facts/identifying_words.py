"""Words that name this host and the people on it.

They are removed from reports that are sent on, and never part of them.
"""

from __future__ import annotations

import os
import pwd
from itertools import chain
from typing import Any

from lockstep.onhost.facts.reader_helpers import folder_paths, lines_of_file, pairs, run, text

_SERIALS = (
    *("product_serial", "board_serial", "chassis_serial", "product_uuid"),
    *("board_asset_tag", "chassis_asset_tag"),
)
_PEOPLE = range(1000, 60000)  # Accounts of people, as Debian and Ubuntu number them.


def read(_: object) -> dict[str, list[Any]]:
    """Return names of the machine and its network, accounts with people's names, serial numbers."""
    pretty = [value for key, value in pairs("/etc/machine-info") if key == "PRETTY_HOSTNAME"]
    # Names of this machine and of others.
    host_names = [line.partition("#")[0].split()[1:] for line in lines_of_file("/etc/hosts")]
    resolver_lines = [line.split() for line in lines_of_file("/etc/resolv.conf")]
    domains = [words[1:] for words in resolver_lines if words[:1] in (["search"], ["domain"])]
    return {
        "hosts": [os.uname().nodename, *pretty, *chain.from_iterable(host_names)],
        "accounts": _names_of_people(),
        "domains": list(chain.from_iterable(domains)),
        "serials": _serials(),
    }


def _names_of_people() -> list[list[str]]:
    """Return every name of each person: account, full name, folder."""
    every = [
        [entry.pw_name, entry.pw_gecos.partition(",")[0], os.path.basename(entry.pw_dir)]
        for entry in pwd.getpwall()
        if entry.pw_uid in _PEOPLE
    ]
    homes = [[os.path.basename(path)] for path in folder_paths("/home")]
    # An account of a directory service is in no file here.
    asking = [[os.environ["SUDO_USER"]]] if os.environ.get("SUDO_USER") else []
    return [*every, *homes, *asking]


def _serials() -> list[str]:
    serials = [text(f"/sys/class/dmi/id/{name}") for name in _SERIALS]
    serials += [text(f"{path}/serial") for path in folder_paths("/sys/class/nvme")]
    serials += [value for key, value in pairs("/etc/dgx-release") if "SERIAL" in key]
    smi = run("nvidia-smi", "--query-gpu=serial", "--format=csv,noheader")
    return [serial for serial in [*serials, *smi.stdout.splitlines()] if serial]
