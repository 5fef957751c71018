"""A request: how its tokens are counted, how a wave is sent, and how an answer breaks."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

import local_server
import pytest

from lockstep.bench.client import Client, Clock
from lockstep.bench.sample import Ask
from lockstep.onhost.engines import ENGINES

ASK = Ask("x", ({"role": "user", "content": "?"},), 8)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str, tokens: int | None, end: str | None = None) -> bytes:
    """One event of a stream; `tokens` are those so far, None where the engine does not say."""
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": end}] if end != "" else []
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 3, "completion_tokens": tokens}}
    return f"data: {json.dumps({'model': 'm', 'choices': choices, **usage})}\n\n".encode()


@pytest.mark.parametrize(
    ("events", "tokens", "first_s", "first_tokens", "last_s", "rate"),
    [
        # Tokens whose text is held back have come.
        ([("", 0), ("", 1), ("", 2), ("Grüße", 3), ("", 3, "length")], 3, 1.5, 1, 3.5, 1.0),
        # Tokens that come together are not counted as generated afterwards.
        ([("three at once", 3), (" and two", 5), ("", 5, "stop")], 5, 0.5, 3, 1.5, 2.0),
        # Text counts where the engine does not count along.
        ([("", None), ("a", None), (" b", None), ("", None, "stop")], 2, 1.5, 1, 2.5, 1.0),
        # An answer in one piece has no rate after its first token.
        ([("all of it", 4, "stop")], 4, 0.5, 4, 0.5, None),
    ],
)
def test_a_token_counts_as_come(events, tokens, first_s, first_tokens, last_s, rate):
    parts = [*(event(*of_one) for of_one in events), event("", tokens, ""), b"data: [DONE]\n\n"]
    # An event is two lines, and each is given its time: an event a second.
    ticks = count()
    clock = Clock(now=lambda: next(ticks) / 2)
    answers = {"/v1/chat/completions": local_server.Reply(b"".join(parts))}
    with local_server.serving(answers) as server:
        sample = Client(server.url, "m", clock=clock).complete(ASK)
    assert sample.good, sample
    assert (sample.first_s, sample.first_tokens, sample.last_s) == (first_s, first_tokens, last_s)
    assert (sample.tokens, sample.decode_rate) == (tokens, rate)


def test_a_lone_token_asks_for_no_ids() -> None:
    """With them would come those of a long prompt, before the first token."""
    with local_server.serving({}) as server:
        client = Client(server.url, "m")
        client.engine = ENGINES["vllm"]
        for tokens in (1, 2):
            client.complete(replace(ASK, max_tokens=tokens))
    bodies = [json.loads(request.body) for request in server.requests]
    assert [body.get("return_token_ids") for body in bodies] == [None, True]


@contextmanager
def serving(answer: Callable[[Any], object]) -> Iterator[str]:
    """A server that has read a request when it calls `answer` with its file for the answer."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline().strip().lower():
                if line.startswith(b"content-length: "):
                    size = int(line.split()[1])
            self.rfile.read(size)
            answer(self.wfile)

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def events(tokens: int) -> list[bytes]:
    """A streamed answer of so many tokens."""
    every = [event("a", number) for number in range(1, tokens + 1)]
    return [*every, event("", None, "length"), b"data: [DONE]\n\n"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_all_of_a_wave_are_sent_before_any_is_read_and_by_one_thread() -> None:
    all_came, threads = threading.Barrier(64), set()

    def answer(client: Any) -> None:
        all_came.wait()
        client.write(HEAD + b"".join(map(chunk, events(8))) + b"0\r\n\r\n")

    def now() -> float:
        threads.add(threading.get_ident())
        return perf_counter()

    with serving(answer) as url:
        client = Client(url, "m", clock=Clock(now=now))
        client.timeout_s = 20.0
        samples, seconds = client.together([ASK] * 64)
    assert [sample.fault for sample in samples] == [""] * 64
    assert {(sample.tokens, sample.pieces) for sample in samples} == {(8, 8)}
    assert threads == {threading.get_ident()}
    assert seconds >= max(sample.seconds for sample in samples)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        # Chunks, cut anywhere, and a body without a length, which ends with its connection.
        (HEAD + b"".join(map(chunk, events(3))) + b"0\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(events(3)), ""),
        (b"", "ConnectionError: no answer"),
        (b"SSH-2.0-OpenSSH\r\n", "ConnectionError: no answer of HTTP: b'SSH-2.0-OpenSSH"),
        (HEAD + chunk(events(3)[0]) + b"40\r\nda", "IncompleteReadError: "),
        (HEAD + b"zz\r\n", "not an answer of this API: invalid literal"),
    ],
)
def test_a_body_is_read_however_it_is_cut_and_a_broken_one_is_a_fault(content, fault):
    def answer(client: Any) -> None:
        for at in range(0, len(content), 7):
            client.write(content[at : at + 7])

    with serving(answer) as url:
        [sample], _ = Client(url, "m").together([ASK])
    assert sample.fault.startswith(fault) and bool(sample.fault) == bool(fault), sample.fault
    assert sample.good != bool(fault)
    assert fault or (sample.tokens, sample.text) == (3, "aaa")


def test_an_answer_that_does_not_come_is_timed_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", "m")
        client.timeout_s = 0.05
        assert client.complete(ASK).fault == "timed out: no answer within 0 s"


def test_nobody_at_the_port_is_a_fault_of_each_sample() -> None:
    samples, _ = Client("http://127.0.0.1:9", "m").together([ASK, ASK])
    assert all(sample.fault.startswith("ConnectionRefusedError: ") for sample in samples)
