"""The HTTP client of the programs on a Spark."""

from __future__ import annotations

import socket

import pytest

from lockstep.onhost.core import http_client
from lockstep.onhost.core.address_text import url
from lockstep.onhost.engines.sglang import ENGINE


@pytest.mark.parametrize(
    "address", ["http://[::1/health", "http://spark..local/", f"http://{'a' * 64}/"]
)
def test_an_address_that_nobody_can_have_is_a_fault_like_another(address):
    with pytest.raises(http_client.FAULTS):
        http_client.ask(address, 5.0)


def test_a_connection_that_does_not_come_ends_by_its_own_limit():
    """The queue of this server is full, so the kernel answers no further connection."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with pytest.raises(TimeoutError):
            http_client.ask(url(*server.getsockname()), 600.0, connect_s=0.1)


def test_an_address_with_colons_of_its_own_stands_in_brackets():
    assert url("spark-1", 80) == "http://spark-1:80"
    assert url("fd00::12", 8443, "https") == url("[fd00::12]", 8443, "https")
    arguments = ENGINE.rank_recipe_keys(rank=0, size=2, master="fd00::12", port=5000, copies=1)
    assert "[fd00::12]:5000" in arguments.values()
