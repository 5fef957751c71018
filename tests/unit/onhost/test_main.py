"""The package as the deploy puts it on a host, run by the system's own interpreter."""

import ast
import subprocess
from pathlib import Path

import pytest

from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import program_files
from lockstep.onhost.__main__ import MODULES

REPOSITORY = Path(__file__).parents[3]
#: Nothing of the environment of these tests: no site-packages, no variables of Python's.
_PYTHON = ("/usr/bin/python3", "-S", "-E")


@pytest.fixture(scope="module")
def programs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a deploy writes below PROGRAMS, in a folder of their own."""
    folder = tmp_path_factory.mktemp("programs")
    for file in program_files():
        path = folder / file.path.removeprefix(f"{PROGRAMS}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*_PYTHON, *words]
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=False, timeout=180
    )


#: Imports each module as the first one of ours, and names those that cannot be.
_IMPORTS = """\
import importlib, sys, traceback
for word, module in (each.split("=") for each in sys.argv[1:]):
    for name in [name for name in sys.modules if name.partition(".")[0] == "lockstep"]:
        del sys.modules[name]
    try:
        importlib.import_module(f"lockstep.onhost.{module}")
    except Exception:
        print(word, traceback.format_exc())
"""


def test_every_program_can_be_imported_with_the_standard_library_alone(programs_folder):
    # The gateway imports what is in an environment of the deploy's own.
    words = [f"{word}={module}" for word, module in MODULES.items() if word != "gateway"]
    result = run(programs_folder, "-c", _IMPORTS, *words)
    assert len(words) > 20
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["gate", "--help"], 0, "usage: lockstep gate "),
        ([], 2, ", ".join(MODULES)),
        (["--help"], 0, ", ".join(MODULES)),
    ],
)
def test_a_program_runs_by_its_word_and_another_word_shows_all(
    programs_folder, words, code, output
):
    result = run(programs_folder, ".", *words)
    assert (result.returncode, output in result.stdout) == (code, True)


def test_every_word_that_the_code_runs_is_one():
    calls = [
        (node.args[0].value, str(path))
        for folder in ("lockstep", "tasks", "benchmarks", "lab")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "command(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("command", "program.command")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]
    assert len(calls) > 20
    assert [call for call in calls if call[0] not in MODULES] == []
