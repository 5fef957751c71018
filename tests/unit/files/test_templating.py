"""Rendering with a cache of compiled templates, and without one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.files import templating

CACHE = f"_jinja2-cache-{os.getuid()}"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder, and no environment from before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    templating.environment.cache_clear()
    yield tmp_path
    templating.environment.cache_clear()


def test_templates_are_compiled_once(temporary: Path) -> None:
    templating.environment().get_template("units/model.service.j2")
    assert list((temporary / CACHE).iterdir())


def test_templates_are_usable_without_a_safe_folder_for_the_cache(temporary: Path) -> None:
    (temporary / CACHE).write_text("somebody else's")
    assert templating.environment().bytecode_cache is None
    templating.environment().get_template("units/model.service.j2")
