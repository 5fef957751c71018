"""The gateway with sockets that systemd holds: its ports are open while it is not there."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from gateway_process import ask, once, prepared, start
from lab_servers import free_port
from raw_engine import LIMIT_S

from lockstep.onhost.gateway.configuration import Door

pytestmark = pytest.mark.slow

SECOND = "127.0.0.5"


def listening(door: Door) -> socket.socket:
    """A socket as systemd opens it for a door."""
    if door.port:
        return socket.create_server((door.address, door.port))
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(door.address)
    found.listen()
    return found


def test_its_ports_stay_open_while_it_restarts_and_who_comes_meanwhile_is_answered(
    tmp_path: Path,
) -> None:
    with prepared(tmp_path) as spark, contextlib.ExitStack() as stack:
        doors = spark.gateway.doors
        handed = [stack.enter_context(listening(door)) for door in reversed(doors)]
        # Of a door that there is no more.
        handed.insert(1, stack.enter_context(socket.create_server((SECOND, free_port()))))
        with once(spark, handed=handed):
            assert ask(spark, "GET", "/health")[0].status == 200
            assert ask(spark, "GET", "/v1/models", door="open")[0].status == 401
            assert ask(spark, "GET", "/health", door="tls")[0].status == 200
            assert "Traceback" not in spark.stop()
        for door in doors:
            if door.port:
                with pytest.raises(OSError, match="in use"):
                    socket.create_server((door.address, door.port))
        clients = [spark.client(kind) for kind in ("local", "open", "tls")]
        for client in clients:
            client.request("GET", "/health")
        with once(spark, handed=handed):
            assert [client.getresponse().status for client in clients] == [200] * 3


def test_what_systemd_starts_opens_no_port_itself(tmp_path: Path) -> None:
    with prepared(tmp_path) as spark, contextlib.ExitStack() as stack:
        local, second, *_ = spark.gateway.doors
        handed = [stack.enter_context(listening(local))]
        with start(spark, str(tmp_path / "none"), {}, handed=handed) as process:
            said = process.communicate(timeout=LIMIT_S)[0]
        assert process.returncode == 1
        assert f"systemd has not opened {second.address}, port {second.port}. Remedy: " in said
        assert "systemctl restart lockstep-gateway.socket" in said


def test_one_socket_of_systemd_at_all_addresses_is_several_doors(tmp_path: Path) -> None:
    port = free_port()
    doors = (Door("local", "127.0.0.1", port), Door("open", "0.0.0.0", port))
    with prepared(tmp_path, doors=doors) as spark, listening(doors[1]) as wide:
        assert spark.gateway.listening == doors[1:]
        with once(spark, handed=[wide]):
            assert ask(spark, "GET", "/v1/models")[0].status == 200
            spark.gateway = replace(
                spark.gateway, doors=(doors[0], replace(doors[1], address=SECOND))
            )
            assert ask(spark, "GET", "/v1/models", door="open")[0].status == 401
