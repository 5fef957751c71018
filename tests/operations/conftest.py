"""One deploy of two wiped Sparks in memory, for all tests that begin where it ended."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from a_spark import pins_for, spark
from an_inventory import copy_repository

from lockstep.lock import lockfile


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a deploy reads, with an inventory of two Sparks in memory."""
    folder = copy_repository(tmp_path_factory.mktemp("repository"))
    inventory(folder, "site")
    lockfile.save(folder / "site.lock.yaml", pins_for(spark()))
    return folder


@pytest.fixture
def wiped_site(repository: Path) -> Site:
    return Site(repository, {})


@dataclass(frozen=True)
class First:
    """A deploy of two wiped hosts that nothing disturbed."""

    site: Site
    result: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def first(repository: Path) -> First:
    site = Site(repository, {})
    return First(site, site.deploy())


@pytest.fixture
def whole(first: First) -> Any:
    """Both hosts as that deploy left them."""
    return first.site.document["hosts"]


@pytest.fixture
def site(repository: Path, whole: Any) -> Site:
    return Site(repository, whole)
