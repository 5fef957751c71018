"""Complaints of the real uv about its own cache differ from those about a build."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.lock.resolve.program import find_uv
from lockstep.onhost.environment.uv_cache_failures import is_broken

BUILD = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'


class Installer:
    """uv with a cache that has one wheel unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "uv-cache"
        wheel = write_wheel(StandInWheel("part", "1.0"), folder)
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (folder / "list.txt").write_text(f"part==1.0 --hash=sha256:{sha256}\n")
        assert self.install("--require-hashes", "--requirement", "list.txt") == ""
        shutil.rmtree(folder / "into")

    def install(self, *arguments: str) -> str:
        """The complaint of uv; "" when it has none."""
        words = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--find-links", ".")
        into = ("--target", "into", "--python", sys.executable)
        result = subprocess.run(
            [find_uv(), *words, *into, *arguments],
            cwd=self.folder,
            env={**os.environ, "UV_CACHE_DIR": str(self.cache), "UV_NO_CONFIG": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode == 0) == (result.stderr == "")
        return result.stderr


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


def cut_pointers(cache: Path) -> None:
    paths = list(cache.glob("wheels-v*/**/*.rev"))
    for pointer in paths:
        pointer.write_bytes(b"")
    assert paths


def remove(name: str) -> Callable[[Path], None]:
    """Remove something of the unpacked wheel, or all of it."""

    def damage(cache: Path) -> None:
        [folder] = (cache / "archive-v0").iterdir()
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


INFO = "part-1.0.dist-info"


DAMAGES = {
    "the wheel is gone": remove(""),
    "its metadata are gone": remove(INFO),
    **{f"no {name}": remove(f"{INFO}/{name}") for name in ("RECORD", "METADATA", "WHEEL")},
    "a pointer is cut off": cut_pointers,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_cache_that_lost_a_part_is_seen(installer, damage):
    damage(installer.cache)
    output = installer.install("--require-hashes", "--requirement", "list.txt")
    assert output != "" and is_broken(output, installer.cache)


def test_a_build_that_fails_or_another_wheel_than_was_demanded_is_no_broken_cache(installer):
    tree = installer.folder / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text(BUILD)
    (tree / "own.py").write_text("import sys\nraise RuntimeError(f'nvcc failed in {sys.prefix}')\n")
    output = installer.install(str(tree))
    # A build runs in the cache, and what it says names that.
    assert f"nvcc failed in {installer.cache}/builds-v0/" in " ".join(output.split())
    assert not is_broken(output, installer.cache)
    (installer.folder / "list.txt").write_text(f"part==1.0 --hash=sha256:{64 * '0'}\n")
    output = installer.install("--require-hashes", "--requirement", "list.txt")
    assert output != "" and not is_broken(output, installer.cache)
