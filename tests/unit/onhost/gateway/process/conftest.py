"""A gateway as a process, for all tests of a file."""

import pytest
from gateway_process import Spark


@pytest.fixture(scope="module")
def spark(gateway: Spark) -> Spark:
    return gateway
