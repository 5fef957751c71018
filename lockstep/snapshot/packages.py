"""Packages of the system: versions, holds, what was installed only for another one."""

from __future__ import annotations

import os

from lockstep.snapshot.collected import Collected, listed, output, text

_FORMAT = "${binary:Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"


def packages(found: Collected) -> None:
    """Every package of dpkg's record."""
    automatic = _automatic()
    for line in output("dpkg-query", "-W", "-f", _FORMAT).splitlines():
        name, version, want, status = line.split("\t")
        name = name.removesuffix(f":{_native()}")
        if status == "installed":
            found.put("apt package", name, version)
            if name in automatic:
                found.put("apt automatic", name, "yes")
        elif status not in ("not-installed", "config-files"):
            found.put("apt state", name, status)
        if want == "hold":
            found.put("apt hold", name, version)


def _automatic() -> set[str]:
    """Names that apt installed because another package wanted them."""
    names, name = set(), ""
    for line in (text("/var/lib/apt/extended_states") or "").splitlines():
        if line.startswith("Package: "):
            name = line.removeprefix("Package: ")
        elif line == "Auto-Installed: 1":
            names.add(name)
    return names


def _native() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")


def alternatives(found: Collected) -> None:
    """Which of several programs a common name stands for."""
    for path in listed("/etc/alternatives"):
        if os.path.islink(path) and not path.endswith((".gz", ".1")):
            found.put("alternative", os.path.basename(path), os.readlink(path))
