"""An engine that answers what a test wants."""

import pytest
from onhost_fakes import FakeEngine


@pytest.fixture
def fake():
    fake = FakeEngine()
    yield fake
    fake.close()
