"""The real programs that judge artefacts; a missing one is a failure."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    argv: Sequence[str | Path], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, with any exit code."""
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        pytest.fail(f"{argv[0]} is missing: install the packages of the Makefile's APT")
    return subprocess.run(
        [program, *map(str, argv[1:])],
        capture_output=True,
        text=True,
        timeout=600,
        env={"PATH": _PATH, "LC_ALL": "C.UTF-8", **(env or {})},
    )


def write_files(folder: Path, files: dict[str, str]) -> list[Path]:
    """Path → text as files below ``folder``."""
    paths = []
    for path, text in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        paths.append(file)
    return paths
