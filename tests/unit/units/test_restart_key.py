"""The cause of a restart of our units: deploy and diff use the same key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import FileSystemLoader

from lockstep.files import templating
from lockstep.inventory.settings import ModelData, Settings
from lockstep.system.folders import wanted_restart_key
from lockstep.units.model_units import model_units
from tests.unit.units.test_model_variants import MODEL, RECIPE, make_variants, settings

UNIT = "engine.service"
OTHER = ModelData(recipe="spare", unit="other", port=8001)


def key(data: Settings | None = None, **texts: str) -> str:
    data = data or settings(model=MODEL)
    files = model_units(data, make_variants(data, **({"main": RECIPE} | texts)))
    return wanted_restart_key(files, UNIT)


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The model's template in a folder of its own, to be changed."""
    shutil.copytree(templating.FOLDER, tmp_path, dirs_exist_ok=True)
    environment = templating.environment()
    monkeypatch.setattr(environment, "loader", FileSystemLoader(tmp_path))
    yield tmp_path / "units/model.service.j2"
    environment.cache.clear()


@pytest.mark.parametrize(
    ("line", "restarts"),
    [
        ("Nice=5", True),
        ("ProtectClock=yes", True),
        ("# Why this is so.", False),
        ("", False),
        ("TimeoutStopSec=90", False),
        ("ExecStartPost=/bin/true", False),
    ],
)
def test_a_line_of_the_template_restarts_what_was_started_without_it(
    template: Path, line: str, restarts: bool
) -> None:
    earlier_key = key()
    text = template.read_text()
    assert "\nKillMode=mixed\n" in text
    template.write_text(text.replace("\nKillMode=mixed\n", f"\n{line}\nKillMode=mixed\n"))
    assert (key() != earlier_key) is restarts


def test_another_model_beside_it_and_more_time_to_start_restart_nothing() -> None:
    """Conflicts=, After= and time-outs are systemd's own, and in force after a reload."""
    beside = key(settings(model=MODEL, more=OTHER), spare=RECIPE)
    slower = key(settings(model=replace(MODEL, start_timeout_s=60)))
    assert beside == slower == key()


def test_what_runs_is_in_the_key() -> None:
    assert key(settings(model=replace(MODEL, port=8002))) != key()
    assert key(main=RECIPE + "env: {A: b}\n") != key()
