"""Settings for all tests: the processes that a test starts end with it, killed or not.

Python looks for garbage less often, and an example may take any time.
"""

import gc
import os
from collections.abc import Iterator

import left_behind
import pytest
from hypothesis import settings

# What thousands of tests and their imports leave in memory stays until the end. With Python's own
# thresholds each worker spends a fifth of its collection looking for garbage among it.
gc.set_threshold(100_000, 20, 100)

# The files of a test are gone with it: none of its thousands of records waits for the disk.
os.fsync = lambda _: None  # type: ignore[assignment,misc]

# A busy machine is no fault of an example.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")


def pytest_collection_finish() -> None:
    """Exempt the objects made by the collection of tests from the search for garbage: they stay."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with left_behind.end_on_exit():
        yield
