"""An engine that answers what a test wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onhost_fakes import FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    fake = FakeEngine()
    yield fake
    fake.close()
