"""The real `openai` and `anthropic` packages at the gateway, before a stand-in engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from fork import Fork
from gateway_process import KEYS, MODELS, running
from lab_servers import ask, until

from lab.content.standin import engine

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    import anthropic
    import openai

ASKED: list[Any] = [{"role": "user", "content": "Repeat these words:\n\none two three"}]
SAID = "one two three"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The open door, where a key is needed, of a host with qwen hot: a stand-in of vLLM."""
    folder = tmp_path_factory.mktemp("host")
    knobs = {"NEED_MODEL": 0, "NEED_MEMORY": 0, "LOAD_SECONDS": 0}
    places = {"RECORD": folder / "argv.json", "KNOBS_FOLDER": folder}
    told = {f"STANDIN_{name}": str(value) for name, value in {**knobs, **places}.items()}
    with running(folder) as spark:
        port = spark.engines["qwen"].getsockname()[1]
        spark.engines["qwen"].close()
        words = [MODELS["qwen"], "--host", "127.0.0.1", "--port", str(port)]
        with Fork(
            lambda: engine.serve("vllm", "9.9", ["vllm", *words], words),
            env={"PATH": os.environ["PATH"], "HF_HOME": str(folder), **told},
        ) as process:
            try:
                health = f"http://127.0.0.1:{port}/health"
                until(lambda: ask(health).status == 200, "the engine is ready")
                door = spark.door("open")
                yield f"http://{door.address}:{door.port}"
            finally:
                process.kill()


# The packages are imported late: each worker imports this file, one of them runs its tests.
def of_openai(url: str, key: str = KEYS["use"]) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def of_anthropic(url: str, key: str = KEYS["use"]) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)


def test_the_list_of_models(url: str) -> None:
    listed = {model.id for model in of_openai(url).models.list()}
    assert listed >= {"qwen", "coder", "mistral", "vectors", "auto"}
    assert of_openai(url).models.retrieve("qwen").owned_by == "lockstep"


def test_a_chat_whole_and_streamed(url: str) -> None:
    answer = of_openai(url).chat.completions.create(model="auto", messages=ASKED)
    assert (answer.choices[0].message.content, answer.model) == (SAID, "Qwen/Q")
    stream = of_openai(url).chat.completions.create(model="auto", messages=ASKED, stream=True)
    pieces = [piece.choices[0].delta.content or "" for piece in stream]
    assert "".join(pieces) == SAID and len(pieces) > 3


def test_messages_whole_and_streamed(url: str) -> None:
    client = of_anthropic(url)
    answer = client.messages.create(model="qwen", messages=ASKED, max_tokens=100)
    assert answer.content[0].text == SAID  # type: ignore[union-attr]
    with client.messages.stream(model="qwen", messages=ASKED, max_tokens=100) as stream:
        assert "".join(stream.text_stream) == SAID
        assert stream.get_final_message().stop_reason == "end_turn"


def test_refusals_are_the_packages_own_errors(url: str) -> None:
    import openai

    def chat(model: str, key: str = KEYS["use"]) -> Any:
        return of_openai(url, key).chat.completions.create(model=model, messages=ASKED)

    with pytest.raises(openai.NotFoundError, match="nobody"):
        chat("nobody")
    with pytest.raises(openai.AuthenticationError, match="a key is needed"):
        chat("qwen", "sk-guessed")
    with pytest.raises(openai.InternalServerError, match="qwen is hot") as cold:
        chat("mistral")
    assert cold.value.status_code == 503
    assert int(cold.value.response.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("model", "role", "status", "kind"),
    [
        ("nobody", "use", 404, "not_found_error"),
        ("qwen", "", 401, "authentication_error"),
        ("mistral", "use", 503, "api_error"),
    ],
)
def test_refusals_of_messages_have_the_other_form(
    url: str, model: str, role: str, status: int, kind: str
) -> None:
    import anthropic

    key = KEYS.get(role, "sk-guessed")
    with pytest.raises(anthropic.APIStatusError) as refused:
        of_anthropic(url, key).messages.create(model=model, messages=ASKED, max_tokens=5)
    body: Any = refused.value.body
    assert (refused.value.status_code, body["type"], body["error"]["type"]) == (
        status,
        "error",
        kind,
    )
