"""The worked examples of CONTRIBUTING.md work: a change that is applied to a copy, and a recipe."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main

ROOT = Path(__file__).parents[3]
PARTS = ("lockstep", "templates", "catalogue", "group_data", "docs", "tasks", "tests/helpers")


def blocks(language: str) -> list[str]:
    """The examples in a language."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_a_key_an_engine_and_a_file_are_added_as_the_page_says(tmp_path: Path) -> None:
    ignore_rule = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, symlinks=True, ignore=ignore_rule)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    result = subprocess.run(
        ["git", "apply", "-C1", "-"],
        input="".join(blocks("diff")),
        text=True,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0"]
    test_run = subprocess.run(
        [*argv, *re.findall(r"^\+\+\+ b/(tests/\S+)$", "".join(blocks("diff")), re.MULTILINE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert test_run.returncode == 0, test_run.stdout + test_run.stderr
    assert "\n5 passed" in test_run.stdout


def test_the_recipe_passes_its_check(tmp_path: Path) -> None:
    file = tmp_path / "qwen3-8b-vllm.yaml"
    (text,) = blocks("yaml")
    file.write_text(text)
    result = CliRunner().invoke(main, ["recipe", "check", str(file)])
    assert result.exit_code == 0, result.output
