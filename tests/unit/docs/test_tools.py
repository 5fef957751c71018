"""Pre-commit runs what `make lint` runs, and the versions agree."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_pre_commit_runs_what_make_lint_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^lint: style words types$", makefile, re.MULTILINE)
    rules = re.findall(r"^(?:style|words|types):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in "".join(rules).splitlines()]
    assert [hook["entry"] for hook in hooks] == lines


def test_the_newest_version_of_the_changes_is_this_one() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == metadata.version("lockstep")
