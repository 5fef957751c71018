"""Messages of commands that cannot go on: one paragraph, its remedy, 80 columns, code 2."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.cli import lab
from lab.core.errors import LabError
from lockstep.cli.main import main
from lockstep.core.errors import paragraph

REPOSITORY = Path(__file__).parents[3]
MODULES = (*REPOSITORY.glob("lockstep/**/*.py"), *REPOSITORY.glob("tasks/**/*.py"))
PYINFRA = Path(sys.executable).with_name("pyinfra")
OF_A_RUNNING_LAB = {
    "status": (),
    "ssh": ("spark1", "--", "true"),
    "cycle": ("spark1",),
    "wipe": ("spark1",),
    "delay": ("all", "20"),
    "cut": ("spark1",),
    "mend": ("spark1",),
    "memory": ("spark1",),
}


def run(*words: str) -> Result:
    return CliRunner().invoke(lab, list(words))


@pytest.fixture(autouse=True)
def no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the labs of this machine: each test has a state folder and a name of its own."""
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LOCKSTEP_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCKSTEP_LAB", f"absent-{os.getpid()}")


def test_a_paragraph_fits_the_terminal_and_keeps_long_words_whole() -> None:
    digest = "sha256:" + 80 * "a"
    text = f"one host-key {' '.join(['word'] * 20)} {digest} end\nnext line"
    assert paragraph(text).splitlines() == [
        "one host-key " + " ".join(["word"] * 13),
        " ".join(["word"] * 7),
        digest,
        "end",
        "next line",
    ]
    # Nor is a command to type broken.
    text = f"{'word ' * 13}`lockstep recipe list` names them all."
    assert paragraph(text).splitlines()[1] == "`lockstep recipe list` names them all."


@pytest.mark.parametrize(
    ("error", "message"),
    [
        # A remedy that does not fit, lines of a log that it quotes, and no remedy.
        (LabError("word " * 14 + "end", "Run: it"), f"lockstep: {'word ' * 13}word\nend.\nRun: it"),
        (LabError("it ended:\n  1\n  2", "Log: /a"), "lockstep: it ended:\n  1\n  2\nLog: /a"),
        (LabError("17 hosts asked for"), "lockstep: 17 hosts asked for."),
    ],
)
def test_an_error_is_told_in_lines_that_fit(error: LabError, message: str) -> None:
    assert error.paragraph() == message


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
    assert result.output.endswith(
        "lockstep: the lab needs root: it makes network namespaces, mounts and control\n"
        "groups.\n"
        "Run the command with sudo.\n"
    )
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_deploy_to_a_lab_that_is_not_up_ends_with_a_paragraph() -> None:
    name = os.environ["LOCKSTEP_LAB"]
    result = subprocess.run(
        [PYINFRA, "-y", "inventories/lab.py", "deploy.py"],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    expected_message = f"lockstep: lab {name!r} is not up. Run: lockstep lab up --name {name}"
    assert " ".join(result.stderr.split()).endswith(expected_message)
    assert "Traceback" not in result.stdout + result.stderr
    assert result.returncode == 2


@cache
def strings(path: Path) -> set[str]:
    """The strings of a module without its docstrings, but with those that `--help` shows."""
    every = list(ast.walk(ast.parse(path.read_text())))
    kinds = (ast.Module, ast.ClassDef, *(() if "cli" in path.parts else (ast.FunctionDef,)))
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
