"""The gateway with sockets that systemd holds: its ports are open while it is not there."""

import contextlib
import socket
from dataclasses import replace

import pytest
from gateway_process import ask, once, prepare_spark, start
from lab_servers import free_port
from raw_engine import LIMIT_S

from lockstep.onhost.gateway.configuration import ListenAddress
from lockstep.onhost.gateway.server import open_listener

pytestmark = pytest.mark.slow

SECOND = "127.0.0.5"


def test_its_ports_stay_open_while_it_restarts_and_who_comes_meanwhile_is_answered(tmp_path):
    with prepare_spark(tmp_path) as spark, contextlib.ExitStack() as stack:
        listeners = spark.gateway.listeners
        sockets = [stack.enter_context(open_listener(listener)) for listener in reversed(listeners)]
        # Of a listener that there is no more.
        sockets.insert(1, stack.enter_context(socket.create_server((SECOND, free_port()))))
        with once(spark, handed_sockets=sockets):
            assert ask(spark, "GET", "/health")[0].status == 200
            assert ask(spark, "GET", "/v1/models", listener="open")[0].status == 401
            assert ask(spark, "GET", "/health", listener="tls")[0].status == 200
            assert "Traceback" not in spark.stop()
        for listener in listeners:
            if listener.port:
                with pytest.raises(OSError, match="in use"):
                    socket.create_server((listener.address, listener.port))
        clients = [spark.client(kind) for kind in ("local", "open", "tls")]
        for client in clients:
            client.request("GET", "/health")
        with once(spark, handed_sockets=sockets):
            assert [client.getresponse().status for client in clients] == [200] * 3


def test_what_systemd_starts_opens_no_port_itself(tmp_path):
    with prepare_spark(tmp_path) as spark:
        local, second, *_ = spark.gateway.listeners
        with (
            open_listener(local) as systemd_socket,
            start(spark, str(tmp_path / "none"), {}, handed_sockets=[systemd_socket]) as process,
        ):
            output = process.communicate(timeout=LIMIT_S)[0]
        assert process.returncode == 1
        assert f"systemd has not opened {second.address}, port {second.port}. Remedy: " in output
        assert "systemctl restart lockstep-gateway.socket" in output


def test_one_socket_of_systemd_at_all_addresses_is_several_listeners(tmp_path):
    port = free_port()
    listeners = (ListenAddress("local", "127.0.0.1", port), ListenAddress("open", "0.0.0.0", port))
    with prepare_spark(tmp_path, listeners=listeners) as spark, open_listener(listeners[1]) as wide:
        assert spark.gateway.listeners_with_socket == listeners[1:]
        with once(spark, handed_sockets=[wide]):
            assert ask(spark, "GET", "/v1/models")[0].status == 200
            second = replace(listeners[1], address=SECOND)
            spark.gateway = replace(spark.gateway, listeners=(listeners[0], second))
            assert ask(spark, "GET", "/v1/models", listener="open")[0].status == 401
