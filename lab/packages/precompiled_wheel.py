"""Stands in for the server of the wheels that vLLM compiles of each commit of its branch `main`."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from urllib.parse import quote

from lab.core.cache import Report, build_once, fingerprint
from lab.git.git_content import DEFAULT_BRANCH, git, git_repositories
from lab.packages.wheels import StandInWheel, write_wheel

#: Folder of the server, and its build.
FOLDER = "vllm-wheels"
VARIANT = "cu130"
#: The one compiled part, and its content.
PART = "vllm/_C.abi3.so"
CONTENT = "compiled from {commit}\n"


def precompiled_wheels(cache: Path, report: Report) -> Path:
    """The folder for the web server: one wheel, of the upstream commit at which the fork began."""
    repositories = git_repositories(cache, report)
    name = fingerprint((Path(__file__), Path(__file__).with_name("wheels.py"), repositories.name))

    def build(folder: Path) -> None:
        commit = git("rev-parse", DEFAULT_BRANCH, cwd=repositories / "vllm.git")
        publish(folder / FOLDER, commit)

    return build_once(cache / f"precompiled-{name}", build, report, "compiled parts of the engine")


def publish(server: Path, commit: str) -> Path:
    """Put the wheel of a commit below ``server`` with its list, laid out as vLLM does."""
    tag = f"cp38-abi3-manylinux_2_31_{platform.machine()}"
    version = f"0.32.1.dev1+g{commit[:9]}.{VARIANT}"
    content = ((PART, CONTENT.format(commit=commit)),)
    target_path = server / commit / VARIANT / "vllm"
    target_path.mkdir(parents=True)
    wheel = write_wheel(StandInWheel("vllm", version, tag=tag, files=content), server / commit)
    row = {
        "package_name": "vllm",
        "version": version,
        "platform_tag": tag.rpartition("-")[2],
        "variant": VARIANT,
        "filename": wheel.name,
        "path": f"../../{quote(wheel.name)}",
    }
    (target_path / "metadata.json").write_text(json.dumps([row]))
    return wheel
