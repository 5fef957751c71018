"""One deploy of two wiped Sparks in memory, for all tests that begin where it ended."""

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


@pytest.fixture(scope="session")
def first(repository: Path) -> Site:
    """Two wiped hosts after a deploy that nothing disturbed."""
    site = Site(repository, {})
    site.deploy()
    return site


@pytest.fixture
def whole(first: Site) -> Any:
    """Both hosts as that deploy left them."""
    return first.document["hosts"]


@pytest.fixture
def site(first: Site) -> Site:
    return first.again()
