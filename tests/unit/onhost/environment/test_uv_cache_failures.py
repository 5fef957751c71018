"""Complaints of the real uv about its own cache differ from those about a build."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.lock.resolve.program import find_uv
from lockstep.onhost.environment.uv_cache_failures import is_broken

BUILD = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
LIST = ("--require-hashes", "--requirement", "list.txt")


def install(*arguments: str) -> str:
    """The complaint of uv with a cache in this folder; "" when it has none."""
    words = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--find-links", ".")
    into = ("--target", "into", "--python", sys.executable)
    result = subprocess.run(
        [find_uv(), *words, *into, *arguments],
        env={**os.environ, "UV_CACHE_DIR": str(Path("uv-cache").resolve()), "UV_NO_CONFIG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode == 0) == (result.stderr == "")
    return result.stderr


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of uv that has one wheel unpacked."""
    monkeypatch.chdir(tmp_path)
    wheel = write_wheel(StandInWheel("part", "1.0"), tmp_path)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    Path("list.txt").write_text(f"part==1.0 --hash=sha256:{sha256}\n")
    assert install(*LIST) == ""
    shutil.rmtree("into")
    return tmp_path / "uv-cache"


@pytest.mark.parametrize("lost_part", ["", "part-1.0.dist-info", "part-1.0.dist-info/METADATA"])
def test_a_cache_that_lost_a_part_of_an_unpacked_wheel_is_seen(cache, lost_part):
    [folder] = (cache / "archive-v0").iterdir()
    path = folder / lost_part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert is_broken(install(*LIST), cache)


def test_a_cache_whose_pointer_was_cut_off_is_seen(cache):
    [pointer] = cache.glob("wheels-v*/**/*.rev")
    pointer.write_bytes(b"")
    assert is_broken(install(*LIST), cache)


def test_a_build_that_fails_or_another_wheel_than_was_demanded_is_no_broken_cache(cache):
    Path("tree").mkdir()
    Path("tree/pyproject.toml").write_text(BUILD)
    Path("tree/own.py").write_text("import sys\nraise OSError(f'nvcc failed in {sys.prefix}')\n")
    output = install("./tree")
    # A build runs in the cache, and what it says names that.
    assert f"nvcc failed in {cache}/builds-v0/" in " ".join(output.split())
    assert not is_broken(output, cache)
    Path("list.txt").write_text(f"part==1.0 --hash=sha256:{64 * '0'}\n")
    output = install(*LIST)
    assert output != "" and not is_broken(output, cache)
