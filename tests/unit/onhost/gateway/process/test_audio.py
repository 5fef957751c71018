"""The real `openai` package sends sound and gets sound, before a stand-in engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_process import KEYS, Spark, running

pytestmark = pytest.mark.slow

SOUND = b"RIFF" + bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with running(tmp_path_factory.mktemp("gateway")) as gateway_host:
        yield gateway_host


def answer(kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
    return head + body


def test_sound_becomes_text_and_text_becomes_sound(spark: Spark) -> None:
    import openai

    listener = spark.listener("open")
    url = f"http://{listener.address}:{listener.port}/v1"
    audio = openai.OpenAI(base_url=url, api_key=KEYS["use"], max_retries=0).audio
    with ThreadPoolExecutor() as pool:
        transcription = pool.submit(
            audio.transcriptions.create, model="coder", file=("a.wav", SOUND)
        )
        wire = spark.accept()
        request = wire.next_request()
        assert request.line == "POST /v1/audio/transcriptions HTTP/1.1"
        assert b'name="model"\r\n\r\nQwen/Q\r\n' in request.body and SOUND in request.body
        assert not request.get("authorization")
        wire.send(answer(b"application/json", b'{"text": "hello"}'))
        assert transcription.result().text == "hello"
        speech = pool.submit(audio.speech.create, model="qwen", voice="alloy", input="hello")
        wire = spark.accept()
        assert b'"model":"Qwen/Q"' in wire.next_request().body
        wire.send(answer(b"audio/wav", SOUND))
        assert speech.result().read() == SOUND
