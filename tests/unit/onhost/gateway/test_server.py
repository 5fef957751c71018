"""The gateway's side of a connection that is gone, whatever is being sent to it."""

import asyncio
import logging
from typing import Any

import pytest
import uvicorn
from event_loop import in_event_loop
from uvicorn.server import ServerState

from lockstep.onhost.gateway import server
from lockstep.onhost.gateway.configuration import ListenAddress
from lockstep.onhost.gateway.request_forwarding import EngineAnswer
from lockstep.onhost.gateway.wire import gateway_answers

LISTENER = ListenAddress("local", "127.0.0.1", 8090)
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Closing(asyncio.Transport):
    """uvloop's, as far as the end of a connection goes: what is written after it raises."""

    def __init__(self) -> None:
        super().__init__({"sockname": (LISTENER.address, LISTENER.port)})
        self.chunks: list[bytes] = []
        self.closing = self.is_closed = False

    def write(self, data: Any) -> None:
        if self.is_closed:
            raise RuntimeError("the handler is closed")
        self.chunks.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        if self.is_closed:
            raise RuntimeError("the handler is closed")


def connect_to(application: Any) -> tuple[server.Protocol, Closing]:
    """A connection of the gateway's server before an application."""
    config = uvicorn.Config(application, http=server.Protocol, lifespan="off", log_config=None)
    config.load()
    protocol, transport = server.Protocol(config, ServerState(), {}), Closing()
    protocol.listeners = server.Listeners([LISTENER], frozenset())
    protocol.connection_made(transport)
    return protocol, transport


def leave(protocol: server.Protocol, transport: Closing) -> None:
    """The client's end of the connection, as uvloop tells it."""
    transport.closing = True
    protocol.connection_lost(None)
    transport.is_closed = True


@pytest.mark.parametrize("in_line", [0, 1])
@in_event_loop
async def test_what_is_sent_to_a_client_that_is_gone_goes_nowhere_and_is_no_error(in_line, caplog):
    has_started, client_left, event_types = asyncio.Event(), asyncio.Event(), []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        answer = EngineAnswer(send, "openai", 0.001)
        has_started.set()
        await client_left.wait()
        for phase in ("loading", "hot"):
            await answer.send_event({"said": phase})
        await answer.end_event_stream()
        event_types.append((await receive())["type"])

    protocol, transport = connect_to(application)
    protocol.data_received(GET * (1 + in_line))
    await has_started.wait()
    earlier_chunks = list(transport.chunks)
    leave(protocol, transport)
    client_left.set()
    await asyncio.gather(*protocol.tasks)
    assert transport.chunks == earlier_chunks
    assert event_types == ["http.disconnect"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@in_event_loop
async def test_no_request_begins_on_a_connection_that_is_being_closed():
    request_paths: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request_paths.append(scope["path"])

    protocol, transport = connect_to(application)
    protocol.data_received(GET.replace(b"/", b"/" + b"x" * server.LONGEST_HEAD, 1) + GET * 2)
    leave(protocol, transport)
    await asyncio.gather(*protocol.tasks)
    (chunk,) = transport.chunks
    assert chunk.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert request_paths == []


@in_event_loop
async def test_many_offers_of_another_protocol_in_line_are_read_one_by_one():
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    protocol, transport = connect_to(application)
    offer = GET.replace(b"\nhost", b"\nconnection: upgrade\r\nupgrade: h2c\r\nhost")
    protocol.data_received(offer * 5000)
    assert len(protocol.pipeline) == 4999
    leave(protocol, transport)
    await asyncio.gather(*protocol.tasks)


@in_event_loop
async def test_who_came_just_before_the_end_is_answered():
    protocol, transport = connect_to(gateway_answers.json_response({}))
    protocol.shutdown()
    assert not transport.closing
    protocol.data_received(GET)
    await asyncio.gather(*protocol.tasks)
    protocol.shutdown()
    assert transport.closing
    assert transport.chunks[0].startswith(b"HTTP/1.1 200 ")
