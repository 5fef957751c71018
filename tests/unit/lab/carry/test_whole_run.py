"""Parts that are carried to a machine: packed programs, and the steps of a whole run."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from a_probe import program

from lab import carry
from lab.carry import whole_run
from lab.carry.steps import serving


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


def _run(
    monkeypatch: pytest.MonkeyPatch, out: Path, *words: str, **functions: Any
) -> tuple[int, dict[str, Any]]:
    """Exit code and results of a run; with `functions`, of these steps alone."""
    if functions:
        limited_steps = {name: (step, 10, 1, ()) for name, step in functions.items()}
        monkeypatch.setattr(whole_run, "STEPS", limited_steps)
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


def test_the_steps_of_a_cluster_are_left_out_on_one_host_and_commands_reach_the_host_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "boot.sh").write_text('echo "$@ in $(pwd)"')

    def reach(run: whole_run.Run) -> dict[str, Any]:
        """A step that asks two hosts."""
        return {"said": [run.on_host("true").strip(), run.on_host("true", host="spark9").strip()]}

    steps = {"one": reach, "cluster-two": reach}
    words = ("--parts", str(tmp_path), "--host", "spark3")
    _, results = _run(monkeypatch, tmp_path / "alone", *words, **steps)
    assert set(results) == {"one"}
    assert results["one"]["figures"]["said"] == [
        "do lockstep lab ssh spark3 -- true in /",
        "do lockstep lab ssh spark9 -- true in /",
    ]
    _, results = _run(monkeypatch, tmp_path / "pair", *words, "--hosts", "2", **steps)
    assert set(results) == {"one", "cluster-two"}


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


def test_the_changed_inventory_has_other_data_of_models_one_model_more_and_its_recipes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = {"models": {"tiny": {"recipe": "tiny-qwen3", "port": 8000}}, "recipe_folders": ("a",)}
    original = tmp_path / "site.py"
    original.write_text(f"site = ([('spark1', {data!r})], {{}})")
    monkeypatch.setattr("lockstep.deploy.checked.checked", lambda _, hosts: (hosts, {}))
    monkeypatch.setenv("LAB", str(tmp_path))

    def change(run: whole_run.Run) -> dict[str, Any]:
        """A step that changes the inventory."""
        changes = {"tiny": {"port": 8001}, "other": {"recipe": "in-image"}}
        return {"path": run.changed_inventory(changes, ("b",))}

    words = ("--inventory", str(original))
    _, results = _run(monkeypatch, tmp_path / "out", *words, changes=change)
    path = tmp_path / "checkout" / results["changes"]["figures"]["path"]
    hosts, _ = runpy.run_path(str(path))["site"]
    models = {"tiny": {"recipe": "tiny-qwen3", "port": 8001}, "other": {"recipe": "in-image"}}
    assert hosts == [("spark1", {"models": models, "recipe_folders": ("a", "b")})]


def test_the_training_sees_the_checkout_and_the_packages_that_the_machine_lacks(
    monkeypatch, tmp_path: Path
) -> None:
    program(tmp_path, "python3", 'echo "{\\"path\\": \\"$PYTHONPATH\\"}" >"$3/trained.json"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LAB", "/a-lab")
    words = ("--trained", str(tmp_path / "trained"))
    _, results = _run(monkeypatch, tmp_path / "out", *words, train=serving.train)
    assert results["train"]["figures"] == {"path": "/a-lab/checkout:/site/site"}


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
