"""Programs and their ports, by the tables of this machine's own kernel."""

import os
import socket

import pytest

from lockstep.onhost.system import listeners


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_listening_socket_is_found_with_its_processes_and_account_and_no_connection(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        # Another process has it too.
        child = os.fork()
        if not child:
            os.read(os.pipe()[0], 1)
            os._exit(0)
        try:
            [listener] = listeners.listeners_at_port(port)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert (listener.protocol, listener.address, listener.uid) == ("tcp", address, os.geteuid())
        assert {os.getpid(), child} <= set(listener.processes)
        with socket.create_connection((address, port)) as client:
            assert listeners.listeners_at_port(client.getsockname()[1]) == []
    assert listeners.listeners_at_port(port) == []
