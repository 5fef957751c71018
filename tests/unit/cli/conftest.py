"""Fixtures that tests of commands share."""

from pathlib import Path

import an_inventory
import pytest


@pytest.fixture
def inventory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file with `HOSTS` of the test's module."""
    return an_inventory.write_inventory(tmp_path, request.module.HOSTS)
