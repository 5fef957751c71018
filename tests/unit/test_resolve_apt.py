"""Debian packages become the newest versions that the archives list."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from local_server import Reply, serving

from lockstep.errors import InventoryError, ResolveError
from lockstep.moving import AptWanted
from lockstep.pins import AptPin, DebianPin
from lockstep.resolve import http
from lockstep.resolve.apt import Archive, archive, resolve_apt
from lockstep.settings import Proxy, Sources

LIST = """\
Package: git
Architecture: arm64
Version: 1:2.43.0-1
Description: fast
 Version: not this line

Package: jq
Version: 1.7.1-3
"""
UPDATES = """\
Package: git
Version: 1:2.43.0-1ubuntu7.2

Package: git
Version: 1:2.43.0-1ubuntu7.10
"""
BINARY = "/ubuntu/dists/{}/main/binary-arm64/Packages"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http, "PAUSE", 0.0)


def wanted(*names: str, architecture: str = "aarch64") -> AptWanted:
    return AptWanted(names, architecture)


def test_the_newest_version_of_all_archives_is_taken() -> None:
    answers = {
        BINARY.format("noble") + ".xz": Reply(lzma.compress(LIST.encode())),
        BINARY.format("noble-updates") + ".gz": Reply(gzip.compress(UPDATES.encode())),
    }
    with serving(answers) as server:
        sources = Sources(
            apt=(f"deb {server.url}/ubuntu noble main",),
            apt_index=(f"deb [arch=arm64] {server.url}/ubuntu/ noble-updates main",),
        )
        pin = resolve_apt(wanted("git", "jq"), sources=sources, proxy=Proxy())
    assert pin == AptPin((DebianPin("git", "1:2.43.0-1ubuntu7.10"), DebianPin("jq", "1.7.1-3")))


def test_a_flat_archive_has_one_list_for_all_architectures() -> None:
    with serving({"/apt/Packages": Reply(LIST.encode())}) as server:
        sources = Sources(apt=(f"deb [trusted=yes] {server.url}/apt ./",), apt_index=())
        pin = resolve_apt(wanted("jq", architecture="x86_64"), sources=sources, proxy=Proxy())
    assert pin.packages == (DebianPin("jq", "1.7.1-3"),)


def failure(answers: dict[str, Reply], *names: str) -> str:
    with serving(answers) as server, pytest.raises(ResolveError) as caught:
        sources = Sources(apt=(f"deb http://user:secret@{server.host}/apt ./",), apt_index=())
        resolve_apt(wanted(*names), sources=sources, proxy=Proxy())
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_packages_that_no_archive_has_are_named() -> None:
    message = failure({"/apt/Packages": Reply(LIST.encode())}, "earlyoom", "git", "ninja")
    assert message.startswith(
        "packages for aarch64: the archives have no such package; found earlyoom, ninja. "
    )


def test_an_archive_without_a_list_is_named() -> None:
    assert "/apt/Packages: the archive has no list of packages here; found HTTP 404" in failure(
        {}, "git"
    )


def test_a_damaged_list_is_no_list() -> None:
    message = failure({"/apt/Packages.xz": Reply(b"\xfd7zXZ\x00damaged")}, "git")
    assert "the archive's list of packages is damaged" in message


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("deb http://a/b noble main x", Archive("http://a/b", "noble", ("main", "x"))),
        ("  deb [trusted=yes arch=arm64] http://a/b ./ ", Archive("http://a/b", "./", ())),
    ],
)
def test_a_line_of_sources_list_is_read(line: str, read: Archive) -> None:
    assert archive(line) == read


@pytest.mark.parametrize("line", ["http://a/b noble main", "deb-src http://a b c", "deb [x http"])
def test_another_line_is_refused(line: str) -> None:
    with pytest.raises(InventoryError, match="no line of sources"):
        archive(line)
