"""Parts that are carried to a machine: packed programs, and the steps of a whole run."""

import json
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from lab import carry
from lab.carry import whole_run


def _measure(run: whole_run.Run) -> dict[str, Any]:
    """A step that has a figure; "broken" fails."""
    if run.name == "broken":
        raise whole_run.StepFailure("HTTP 503 | down", {"code": 503})
    return {"seconds": 1.2345}


def _run(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and results of a run."""
    argv = ["whole_run.py", "--out", str(out), "--seconds", "700", *words]
    monkeypatch.setattr(sys, "argv", argv)
    code = whole_run.main()
    return code, json.loads((out / "whole_run.json").read_text())["steps"]


def test_a_step_that_fails_ends_only_those_that_need_it_and_a_later_call_repeats_only_these(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs = {"first": (), "broken": ("first",), "behind": ("broken",), "last": ("first",)}
    steps = {name: (_measure, 10, 1, of) for name, of in needs.items()}
    monkeypatch.setattr(whole_run, "STEPS", {**steps, "long": (_measure, 900, 800, ())})
    code, results = _run(monkeypatch, tmp_path)
    assert code == 1
    states = [(result["state"], result.get("reason")) for result in results.values()]
    assert [state for state, _ in states] == [
        *("measured", "failed", "not measured", "measured", "not measured")
    ]
    assert [states[at][1] for at in (2, 4)] == ["needs broken", "no time left"]
    assert r"HTTP 503 \| down; code: 503" in (tmp_path / "whole_run.md").read_text()
    step_names: list[str] = []
    noted_steps = {
        name: (lambda run: step_names.append(run.name) or {}, 10, 1, of)
        for name, of in needs.items()
    }
    monkeypatch.setattr(whole_run, "STEPS", noted_steps)
    assert _run(monkeypatch, tmp_path)[0] == 0
    assert step_names == ["broken", "behind"]
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


def test_each_program_begins_where_its_package_says() -> None:
    """Begun elsewhere, pyinfra orders operations otherwise: hosts did not wait for each other."""
    text = Path(carry.__file__).with_name("pack.sh").read_text(encoding="utf-8")
    programs = re.findall(r"^program (\S+) (\S+) (\S+)$", text, re.MULTILINE)
    assert [name for name, *_ in programs] == ["lockstep", "pyinfra"]
    for name, module, function in programs:
        (entry,) = entry_points(group="console_scripts", name=name)
        assert entry.value == f"{module}:{function}"
