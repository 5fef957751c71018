"""What tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def inventory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file with `INVENTORY` of the test's module."""
    path = tmp_path / "sparks.py"
    path.write_text(request.module.INVENTORY)
    return path
