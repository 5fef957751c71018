"""The real `openai` and `anthropic` packages, and the shapes that other programs send.

At the gateway, before stand-ins that refuse what the chat templates of their models refuse. The
programs themselves: `make clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from gateway_process import KEYS, Spark, hot
from raw_engine import reply
from templated_engines import templated_spark

from lockstep.clients.check import GatewayAddress, ask_all, shapes

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    import anthropic
    import openai

ASKED: list[Any] = [{"role": "user", "content": "Repeat these words:\n\none two three"}]
SAID = "one two three"
CITY = {"city": "Rome"}
TOOL_USE = {"type": "tool_use", "id": "toolu_0001", "name": "look", "input": CITY}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Spark, dict[str, str]]]:
    """A host with qwen hot, and the address of each of its engines."""
    with templated_spark(tmp_path_factory.mktemp("host")) as host_urls:
        yield host_urls


@pytest.fixture
def url(engines: tuple[Spark, dict[str, str]]) -> str:
    """The address of the open listener, which wants a key."""
    listener = engines[0].listener("open")
    return f"http://{listener.address}:{listener.port}"


# The packages are imported late: each worker imports this file, one of them runs its tests.
def of_openai(url: str, key: str = KEYS["use"]) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def of_anthropic(url: str, key: str = KEYS["use"]) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)


def test_refusals_are_the_packages_own_errors(url):
    import anthropic
    import openai

    for model, key, status, kind, words in (
        ("nobody", KEYS["use"], 404, "not_found_error", "nobody"),
        ("qwen", "sk-guessed", 401, "authentication_error", "a key is needed"),
        ("mistral", KEYS["use"], 503, "api_error", "qwen is hot"),
    ):
        with pytest.raises(openai.APIStatusError, match=words) as refusal:
            of_openai(url, key).chat.completions.create(model=model, messages=ASKED)
        assert refusal.value.status_code == status
        # Messages have another form.
        with pytest.raises(anthropic.APIStatusError) as error:
            of_anthropic(url, key).messages.create(model=model, messages=ASKED, max_tokens=5)
        body: Any = error.value.body
        assert error.value.status_code == status
        assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert int(refusal.value.response.headers["retry-after"]) > 0


#: What each engine refuses when it is asked itself.
REFUSED = {
    "qwen": {"Open WebUI", "Claude Code", "Codex", "Pydantic AI", "Cindy", "LiteLLM"},
    "mistral": {
        *("Open WebUI", "Claude Code", "Codex", "opencode", "Roo Code", "LibreChat"),
        *("Pydantic AI", "Cindy", "LiteLLM"),
    },
}


@pytest.fixture
def heat(engines: tuple[Spark, dict[str, str]]) -> Iterator[Callable[[str], None]]:
    """Make a model hot; qwen is again, afterwards."""
    yield lambda model: hot(engines[0], model)
    hot(engines[0], "qwen")


@pytest.mark.parametrize("model", REFUSED)
def test_what_an_engine_refuses_of_other_programs_works_through_the_gateway(
    engines, heat, url, model
):
    heat(model)
    gateway, engine = (GatewayAddress(at, KEYS["use"]) for at in (url, engines[1][model]))
    assert gateway.hot() == model
    # The stand-in reads no chunks.
    chosen_shapes = [shape for shape in shapes() if not shape.chunks]
    rows = ask_all(engine, chosen_shapes, pictures=True)
    refused_pairs = {(row.program, row.shape) for row in rows if row.outcome == "refused"}
    assert {program for program, _ in refused_pairs} == REFUSED[model]
    rows = list(ask_all(gateway, shapes(), pictures=True))
    assert [row for row in rows if row.outcome not in ("works", "evened")] == []
    assert refused_pairs <= {(row.program, row.shape) for row in rows if row.outcome == "evened"}


def test_sound_becomes_text_and_text_becomes_sound(engines, heat, url):
    heat("vectors")
    spark, sound = engines[0], b"RIFF" + bytes(range(256)) * 1000
    audio = of_openai(url).audio
    with ThreadPoolExecutor() as pool:
        file = ("a.wav", sound)
        transcription = pool.submit(audio.transcriptions.create, model="vectors", file=file)
        wire = spark.accept("vectors")
        request = wire.next_request()
        assert b'name="model"\r\n\r\nE/V\r\n' in request.body and sound in request.body
        wire.send(reply(b'{"text": "a"}'))
        assert transcription.result().text == "a"
        speech = pool.submit(audio.speech.create, model="vectors", voice="alloy", input="hello")
        wire = spark.accept("vectors")
        assert b'"model":"E/V"' in wire.next_request().body
        wire.send(reply(sound, kind="audio/wav"))
        assert speech.result().read() == sound


def test_both_packages_talk_to_a_template_that_alternates(heat, url):
    heat("mistral")
    twice = [{"role": "user", "content": "I have a wish."}, *ASKED]
    chat = of_openai(url).chat.completions.create(model="auto", messages=twice)
    assert chat.choices[0].message.content == SAID
    opening: list[Any] = [{"role": "developer", "content": "Be brief."}, *twice]
    response = of_openai(url).responses.create(model="auto", instructions="x", input=opening)
    assert response.output_text == SAID
    with of_openai(url).responses.stream(model="auto", input=opening) as stream:
        assert stream.get_final_response().output_text == SAID
    result = {"type": "tool_result", "tool_use_id": TOOL_USE["id"], "content": "r"}
    messages: list[Any] = [
        *ASKED,
        {"role": "assistant", "content": [TOOL_USE]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]
    client = of_anthropic(url)
    message = client.messages.create(model="auto", messages=messages, max_tokens=9)
    assert message.stop_reason == "max_tokens"
    assert client.messages.count_tokens(model="auto", messages=messages).input_tokens > 10
