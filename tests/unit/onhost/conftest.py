"""A host's root and its systemd, for the tests of its programs."""

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout


@pytest.fixture
def paths(tmp_path) -> layout.Paths:
    return layout.Paths(tmp_path)


@pytest.fixture
def systemd(tmp_path, monkeypatch) -> FakeSystemd:
    return FakeSystemd(tmp_path / "systemd", monkeypatch)
