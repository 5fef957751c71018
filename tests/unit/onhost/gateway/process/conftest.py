"""A gateway with bounds, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_process import Spark, limited_gateway


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with limited_gateway(tmp_path_factory.mktemp("gateway")) as gateway_host:
        yield gateway_host
