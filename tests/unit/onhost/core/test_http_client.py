"""The HTTP client of the programs on a Spark."""

import socket

import pytest

from lockstep.onhost.core import http_client
from lockstep.onhost.core.address_text import url


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
    assert url("fd00::12", 8443, "https") == "https://[fd00::12]:8443"
