"""Parts that are carried to a machine: packed programs, and the steps of a whole run."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from lab import carry
from lab.carry import whole_run


def _measure(run: whole_run.Run) -> dict[str, Any]:
    """A step that has a figure."""
    return {"seconds": 1.2345, "name": run.name}


def _fail(run: whole_run.Run) -> dict[str, Any]:
    """A step that fails."""
    raise whole_run.StepFailure("HTTP 503 | down", {"code": 503})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_run, "STEPS", {
        "first": (_measure, 10, 1, ()),
        "broken": (_fail, 10, 1, ("first",)),
        "behind": (_measure, 10, 1, ("broken",)),
        "last": (_measure, 10, 1, ("first",)),
        "long": (_measure, 900, 800, ()),
    })  # fmt: skip


def _run(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and results of a run."""
    argv = ["whole_run.py", "--out", str(out), "--seconds", "700", *words]
    monkeypatch.setattr(sys, "argv", argv)
    code = whole_run.main()
    return code, json.loads((out / "whole_run.json").read_text())["steps"]


def test_a_step_that_fails_ends_only_those_that_need_it(steps, monkeypatch, tmp_path) -> None:
    code, results = _run(monkeypatch, tmp_path)
    assert code == 1
    assert {name: result["state"] for name, result in results.items()} == {
        "first": "measured",
        "broken": "failed",
        "behind": "not measured",
        "last": "measured",
        "long": "not measured",
    }
    assert results["behind"]["reason"] == "needs broken"
    assert results["long"]["reason"] == "no time left"
    assert r"HTTP 503 \| down; code: 503" in (tmp_path / "whole_run.md").read_text()


def test_a_later_call_goes_on_and_repeats_only_what_failed_or_is_asked_for(
    steps: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _run(monkeypatch, tmp_path, "first")
    step_names: list[str] = []

    def note(run: whole_run.Run) -> dict[str, Any]:
        """A step that is noted."""
        step_names.append(run.name)
        return {}

    noted_steps = {name: (note, *limits) for name, (_, *limits) in whole_run.STEPS.items()}
    monkeypatch.setattr(whole_run, "STEPS", noted_steps)
    assert _run(monkeypatch, tmp_path)[0] == 0
    assert step_names == ["broken", "behind", "last"]
    _run(monkeypatch, tmp_path, "--again", "first")
    assert step_names[-1] == "first"


def test_a_command_that_hangs_is_ended_with_its_children_at_the_limit_of_its_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hang(run: whole_run.Run) -> dict[str, Any]:
        """A step that hangs."""
        run.machine("sh", "-c", "sleep 600 & echo begun; wait")
        return {}

    monkeypatch.setattr(whole_run, "STEPS", {"hangs": (hang, 1, 0, ())})
    code, results = _run(monkeypatch, tmp_path)
    assert code == 1 and "not within the step's limit" in results["hangs"]["reason"]
    assert "begun" in (tmp_path / "hangs.txt").read_text()


SCRIPT = Path(carry.__file__).with_name("pack.sh")
PACK = SCRIPT.read_text(encoding="utf-8")


def test_each_program_begins_where_its_package_says() -> None:
    """Begun elsewhere, pyinfra orders operations otherwise: hosts did not wait for each other."""
    programs = re.findall(r"^program (\S+) (\S+) (\S+)$", PACK, re.MULTILINE)
    assert [name for name, *_ in programs] == ["lockstep", "pyinfra"]
    entry_points_by_name = {
        entry.name: entry.value for entry in entry_points(group="console_scripts")
    }
    for name, module, function in programs:
        assert f"{module}:{function}" == entry_points_by_name[name]


def test_its_folders_may_be_relative(tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    (tmp_path / "lab/carry").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "lab/carry")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    # It knows the root's identity and nothing else, so the script ends behind it.
    python.write_text('#!/bin/sh\ncase "$2" in *identity*) echo abc ;; *) exit 9 ;; esac\n')
    python.chmod(0o755)
    words = ["sh", "lab/carry/pack.sh", "work", "parts", "debs"]
    assert subprocess.run(words, cwd=tmp_path).returncode == 9
    assert (tmp_path / "parts/identity").read_text() == "abc\n"
    assert not list((tmp_path / "work").iterdir())
