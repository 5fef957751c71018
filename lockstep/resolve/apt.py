"""Debian packages to the versions that apt's archives offer, from their lists of packages."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key

from lockstep.debian_version import compare
from lockstep.errors import InventoryError, ResolveError
from lockstep.moving import AptWanted
from lockstep.pins import AptPin, DebianPin
from lockstep.resolve.http import ask, without_credentials
from lockstep.settings import Proxy, Sources

# As `uname -m` says it → as Debian says it.
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_LINE = re.compile(
    r"deb(?:\s+\[[^]]*\])?\s+(?P<url>[^\s[]\S*)\s+(?P<suite>\S+)(?P<parts>(?:\s+\S+)*)\s*"
)
# Best first; every archive has one of them.
_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    "": bytes,
}
_BROKEN = (lzma.LZMAError, OSError, EOFError)


@dataclass(frozen=True)
class Archive:
    """One line of sources.list: where the lists of packages stand."""

    url: str
    suite: str
    parts: tuple[str, ...]

    def lists(self, architecture: str) -> Iterator[str]:
        """Address of each list of packages, without the suffix of its compression."""
        base = self.url.rstrip("/")
        if self.suite.endswith("/"):
            # A flat archive: one list beside the packages.
            yield f"{base}/{self.suite.removeprefix('./')}Packages"
        for part in self.parts:
            yield f"{base}/dists/{self.suite}/{part}/binary-{architecture}/Packages"


def resolve_apt(item: AptWanted, *, sources: Sources, proxy: Proxy) -> AptPin:
    """The newest version of each package in any of the archives.

    The host's apt checks signatures and hashes when it installs; here only versions are read.

    Raises:
        ResolveError: an archive cannot be asked, or has no such package.
    """
    architecture = ARCHITECTURES.get(item.architecture, item.architecture)
    offered: dict[str, list[str]] = {name: [] for name in item.names}
    lines = (*sources.apt, *sources.apt_index)
    for line in lines:
        for address in archive(line).lists(architecture):
            for name, version in _listed(address, proxy):
                if name in offered:
                    offered[name].append(version)
    absent = [name for name, versions in offered.items() if not versions]
    if absent:
        raise ResolveError(
            "the archives have no such package",
            where=f"packages for {item.architecture}",
            found=", ".join(absent),
            remedy="Correct `packages`, or name their archive under sources.apt or apt_index.",
        )
    newest = {name: max(found, key=cmp_to_key(compare)) for name, found in offered.items()}
    return AptPin(tuple(DebianPin(name, newest[name]) for name in sorted(newest)))


def archive(line: str) -> Archive:
    """One line of sources.list.

    Raises:
        InventoryError: it is none.
    """
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise InventoryError(
            "sources.apt or apt_index holds what is no line of sources.list",
            found=repr(without_credentials(line))[:80],
            allowed="deb [OPTIONS] URL SUITE COMPONENT…, or deb URL ./",
        )
    return Archive(found["url"], found["suite"], tuple(found["parts"].split()))


def _listed(address: str, proxy: Proxy) -> Iterator[tuple[str, str]]:
    """Name and version of every package of one list."""
    name = ""
    for line in _text(address, proxy).splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            name = value.strip()
        elif key == "Version" and name:
            yield name, value.strip()


def _text(address: str, proxy: Proxy) -> str:
    for suffix, unpack in _UNPACK.items():
        answer = ask(address + suffix, proxy=proxy)
        if answer.status == 404:
            continue
        if answer.status != 200:
            break
        try:
            return unpack(answer.body).decode("utf-8", "replace")
        except _BROKEN as fault:
            raise ResolveError(
                "the archive's list of packages is damaged",
                where=answer.url,
                found=str(fault)[:80] or type(fault).__name__,
                remedy="Run again later, or name another mirror under sources.",
            ) from fault
    raise ResolveError(
        "the archive has no list of packages here",
        where=without_credentials(address),
        found=f"HTTP {answer.status}",
        remedy="Correct sources.apt and apt_index.",
    )
