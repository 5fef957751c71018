"""Packages of the system: versions, holds, what was installed only for another one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from lockstep.onhost.core import errors, layout
from lockstep.onhost.facts.reading import Facts, listed, output, rows, run
from lockstep.onhost.records import packages
from lockstep.onhost.system import apt_turn

_QUERY = ("dpkg-query", "-W", "-f")
_FORMAT = "${binary:Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"


def read(names: Sequence[str]) -> dict[str, str]:
    """Package → version, of those among the names that are installed."""
    rows = _rows(run(*_QUERY, _FORMAT, *names).stdout)
    return {name: version for name, version, _, status in rows if status == "installed"}


def noted(_: object) -> list[str]:
    """Packages that leave this host when nothing asks for them any more."""
    return packages.load(layout.Paths()).packages


def unfinished_packages(names: Sequence[str]) -> dict[str, str]:
    """Packages of others that keep apt from installing those of the names that are not here → how.

    {} where nothing is to be installed, and where somebody is at work with apt: then they may be
    what is being installed.
    """
    paths = layout.Paths()
    if not set(names) - set(read(names)) or apt_turn.holder(paths):
        return {}
    try:
        found = packages.unfinished_packages(paths, names)
    except errors.Problem:
        return {}  # No apt-get here, or one that hangs; the deploy's own asks again.
    return {} if apt_turn.holder(paths) else found


def candidate(name: str) -> str:
    """Version of a Debian package: the installed one, else the archive's candidate; "" for none."""
    found = run(*_QUERY, "${Version}", name).stdout
    if found:
        return found
    shown = run("apt-cache", "show", "--no-all-versions", name).stdout
    version = re.search(r"^Version: (\S+)$", shown, re.MULTILINE)
    return version[1] if version else ""


def every(_: object) -> Facts:
    """Every package of dpkg's record."""
    automatic = _automatic()
    for name, version, want, status in _rows(output(*_QUERY, _FORMAT)):
        if status == "installed":
            yield "apt package", name, version
            if name in automatic:
                yield "apt automatic", name, "yes"
        elif status not in ("not-installed", "config-files"):
            yield "apt state", name, status
        if want == "hold":
            yield "apt hold", name, version


def _rows(said: str) -> Iterator[list[str]]:
    """Name, version, what is wanted and what is there."""
    native = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")
    for line in said.splitlines():
        name, *others = line.split("\t")
        yield [name.removesuffix(f":{native}"), *others]


def _automatic() -> set[str]:
    """Names that apt installed because another package wanted them."""
    names, name = set(), ""
    for line in rows("/var/lib/apt/extended_states"):
        if line.startswith("Package: "):
            name = line.removeprefix("Package: ")
        elif line == "Auto-Installed: 1":
            names.add(name)
    return names


def alternatives(_: object) -> Facts:
    """Which of several programs a common name stands for."""
    for path in listed("/etc/alternatives"):
        if os.path.islink(path) and not path.endswith((".gz", ".1")):
            yield "alternative", os.path.basename(path), os.readlink(path)
