"""Hosts with a gateway: one on which it switches, and one before engines of a test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from a_switching_spark import SwitchingSpark
from gateway_process import BOUNDED, running


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwitchingSpark]:
    spark = SwitchingSpark(tmp_path, monkeypatch)
    yield spark
    spark.close()


@pytest.fixture(scope="module")
def gateway(request, tmp_path_factory):
    """The gateway as a process, for all tests of a file and with its SETTINGS."""
    settings = getattr(request.module, "SETTINGS", BOUNDED)
    with running(tmp_path_factory.mktemp("gateway"), **settings) as gateway_host:
        yield gateway_host
