"""Messages of commands that cannot go on: one paragraph, its remedy, 80 columns, code 2."""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.cli import lab
from lockstep.cli.main import main

REPOSITORY = Path(__file__).parents[3]
MODULES = (*REPOSITORY.glob("lockstep/**/*.py"), *REPOSITORY.glob("tasks/**/*.py"))
OF_A_RUNNING_LAB = {
    **{"status": (), "ssh": ("spark1", "--", "true"), "delay": ("all", "20")},
    **dict.fromkeys(("cycle", "wipe", "cut", "mend", "memory"), ("spark1",)),
}


def run(*words: str) -> Result:
    return CliRunner().invoke(lab, list(words))


@pytest.fixture(autouse=True)
def no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the labs of this machine: each test has a state folder and a name of its own."""
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LOCKSTEP_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCKSTEP_LAB", f"absent-{os.getpid()}")


@pytest.mark.parametrize("command", sorted(OF_A_RUNNING_LAB))
def test_a_lab_that_is_not_up_is_said_with_the_command_that_brings_it_up(command: str) -> None:
    name = os.environ["LOCKSTEP_LAB"]
    result = run(command, *OF_A_RUNNING_LAB[command])
    expected_message = f"lockstep: lab {name!r} is not up. Run: lockstep lab up --name {name}"
    assert (result.exit_code, " ".join(result.output.split())) == (2, expected_message)


@pytest.mark.parametrize("command", ["up", "down"])
def test_who_is_not_root_is_told_so(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = run(command)
    assert result.exit_code == 2
    assert "the lab needs root" in result.output and "with sudo." in result.output


@cache
def strings(path: Path) -> set[str]:
    """The strings of a module without its docstrings, but with those that `--help` shows."""
    every = list(ast.walk(ast.parse(path.read_text())))
    is_shown = "cli" in path.relative_to(REPOSITORY).parts
    kinds = (ast.Module, ast.ClassDef, *(() if is_shown else (ast.FunctionDef,)))
    docstrings = {ast.get_docstring(node, False) for node in every if isinstance(node, kinds)}
    return {str(node.value) for node in every if isinstance(node, ast.Constant)} - docstrings


@pytest.mark.parametrize(
    "pattern",
    [
        # It takes images of cold models; comments and docstrings may speak of it.
        r"(?:docker|image|system) prune",
        # A page is named by the command that shows it: an installation has no folder docs;
        # neither has a Spark, nor a phone that gets an alert.
        r"docs/[\w/-]+\.md",
    ],
)
def test_nobody_is_told_to_prune_images_or_to_open_a_file_of_docs(pattern: str) -> None:
    findings = [(path, text) for path in MODULES for text in strings(path)]
    assert [item for item in findings if re.search(pattern, item[1])] == []


def test_each_page_and_section_that_is_named_is_shown() -> None:
    files = (*MODULES, *REPOSITORY.glob("catalogue/*.yaml"), *REPOSITORY.glob("docs/*.md"))
    pattern = re.compile(r"`lockstep help ([a-z/-]+)(?: ([a-z-]+))?`")
    named_pages = {words for path in files for words in pattern.findall(path.read_text())}
    assert len(named_pages) > 10
    for page, section in named_pages:
        result = CliRunner().invoke(main, ["help", page, *([section] if section else [])])
        assert (result.exit_code, result.output[:1]) == (0, "#"), (page, section)
