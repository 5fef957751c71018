"""Packages of the system: versions, holds, and those installed only for another package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.onhost.core import errors, layout
from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    lines_of_file,
    output_or_raise,
    run,
)
from lockstep.onhost.records import package_changes
from lockstep.onhost.system import apt_lock_wait

_QUERY = ("dpkg-query", "-W", "-f")
_FORMAT = "${binary:Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"


def read(question: dict[str, Any]) -> Facts:
    """Yield the packages of dpkg's record: those "names", or with "others" all of them."""
    all_packages = question["others"]
    # dpkg-query fails if it does not know one of the names.
    answer = (
        output_or_raise(*_QUERY, _FORMAT)
        if all_packages
        else run(*_QUERY, _FORMAT, *question["names"]).stdout
    )
    automatic = _automatic() if all_packages else ()
    for name, version, want, status in _rows(answer):
        if status == "installed":
            yield "apt package", name, version
            if name in automatic:
                yield "apt automatic", name, "yes"
        elif status not in ("not-installed", "config-files"):
            yield "apt state", name, status
        if want == "hold":
            yield "apt hold", name, version


def brought_packages(_: object) -> list[str]:
    """Return packages that leave this host when nothing needs them any more."""
    return package_changes.load(layout.Paths()).packages


def unfinished_packages(names: Sequence[str]) -> dict[str, str]:
    """Return other packages that keep apt from installing the missing ones of the names → how.

    {} if nothing is to be installed. {} also while somebody uses apt: the packages may be those
    that are being installed.
    """
    paths = layout.Paths()
    facts = read({"names": names, "others": False})
    installed_names = {name for kind, name, _ in facts if kind == "apt package"}
    if installed_names.issuperset(names) or apt_lock_wait.apt_lock_holder(paths):
        return {}
    try:
        packages_found = package_changes.foreign_unfinished_packages(paths, names)
    except errors.Problem:
        return {}  # No apt-get here, or one that hangs; the deploy's own call tries again.
    return {} if apt_lock_wait.apt_lock_holder(paths) else packages_found


def installed_or_candidate_version(name: str) -> str:
    """Return a package's installed version, else the archive's candidate; "" for neither."""
    candidate_version = run(*_QUERY, "${Version}", name).stdout
    if candidate_version:
        return candidate_version
    record_text = run("apt-cache", "show", "--no-all-versions", name).stdout
    version = re.search(r"^Version: (\S+)$", record_text, re.MULTILINE)
    return version[1] if version else ""


def _rows(query_output: str) -> Iterator[list[str]]:
    """Yield name, version, wanted state and present state."""
    native = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")
    for line in query_output.splitlines():
        name, *other_fields = line.split("\t")
        yield [name.removesuffix(f":{native}"), *other_fields]


def _automatic() -> set[str]:
    """Return the names of packages that apt installed because another package needed them."""
    names, name = set(), ""
    for line in lines_of_file("/var/lib/apt/extended_states"):
        if line.startswith("Package: "):
            name = line.removeprefix("Package: ")
        elif line == "Auto-Installed: 1":
            names.add(name)
    return names


def alternatives(_: object) -> Facts:
    """Yield the program that each common name stands for."""
    for path in folder_paths("/etc/alternatives"):
        if os.path.islink(path) and not path.endswith((".gz", ".1")):
            yield "alternative", os.path.basename(path), os.readlink(path)
