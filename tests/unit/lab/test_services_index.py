"""The lab's package index, asked by the real uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab_servers import running

from lab.http.access_log import AccessLog, log_path
from lab.http.web import WebServer
from lab.packages.python_packages import FLASHINFER_STAND_INS, SIMPLE_STAND_INS
from lab.packages.simple_index import write_index
from lab.packages.wheels import StandInWheel, write_wheel


def make_index(folder: Path, name: str, wheels: list[StandInWheel]) -> None:
    target_path = folder / f"{name}-wheels"
    target_path.mkdir(parents=True)
    write_index(folder / name, [write_wheel(wheel, target_path) for wheel in wheels])


def resolve(indexes: list[str], *requirements: str) -> subprocess.CompletedProcess[str]:
    """The choice of uv from these indexes alone."""
    more = [word for url in indexes[1:] for word in ("--extra-index-url", url)]
    command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--no-config", "--no-cache"]
    command += ["--no-header", "--no-annotate", "--index-url", indexes[0], *more, "-"]
    requirement_lines = "\n".join(requirements)
    return subprocess.run(command, input=requirement_lines, capture_output=True, text=True)


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
