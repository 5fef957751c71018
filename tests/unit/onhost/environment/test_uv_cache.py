"""What the real uv says about its own cache is told from what it says about a build."""

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
from lockstep.onhost.environment.uv_cache import broken

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

    def install(self, *what: str) -> str:
        """What uv complains of; "" where it is content."""
        words = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--find-links", ".")
        into = ("--target", "into", "--python", sys.executable)
        done = subprocess.run(
            [find_uv(), *words, *into, *what],
            cwd=self.folder,
            env={**os.environ, "UV_CACHE_DIR": str(self.cache), "UV_NO_CONFIG": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (done.stderr == "")
        return done.stderr

    @property
    def unpacked(self) -> Path:
        [folder] = (self.cache / "archive-v0").iterdir()
        return folder


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


def without(name: str) -> Callable[[Installer], None]:
    return lambda installer: (installer.unpacked / "part-1.0.dist-info" / name).unlink()


def cut_pointers(installer: Installer) -> None:
    found = list(installer.cache.glob("wheels-v*/**/*.rev"))
    for pointer in found:
        pointer.write_bytes(b"")
    assert found


DAMAGES: dict[str, Callable[[Installer], None]] = {
    "the wheel is gone": lambda installer: shutil.rmtree(installer.unpacked),
    "its metadata are gone": lambda installer: shutil.rmtree(
        installer.unpacked / "part-1.0.dist-info"
    ),
    "no RECORD": without("RECORD"),
    "no METADATA": without("METADATA"),
    "no WHEEL": without("WHEEL"),
    "a pointer is cut off": cut_pointers,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_cache_that_lost_a_part_is_seen(
    installer: Installer, damage: Callable[[Installer], None]
) -> None:
    damage(installer)
    said = installer.install("--require-hashes", "--requirement", "list.txt")
    assert said != "" and broken(said, installer.cache)


def test_a_build_that_fails_is_no_broken_cache(installer: Installer) -> None:
    tree = installer.folder / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text(BUILD)
    (tree / "own.py").write_text("import sys\nraise RuntimeError(f'nvcc failed in {sys.prefix}')\n")
    said = installer.install(str(tree))
    # A build runs in the cache, and what it says names that.
    assert f"nvcc failed in {installer.cache}/builds-v0/" in " ".join(said.split())
    assert not broken(said, installer.cache)


def test_a_wheel_that_is_not_what_was_demanded_is_no_broken_cache(installer: Installer) -> None:
    (installer.folder / "list.txt").write_text(f"part==1.0 --hash=sha256:{64 * '0'}\n")
    said = installer.install("--require-hashes", "--requirement", "list.txt")
    assert said != "" and not broken(said, installer.cache)
