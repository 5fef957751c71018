"""The real `openai` and `anthropic` packages at the gateway, before a stand-in engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gateway_site
import pytest
from gateway_process import KEYS
from lab_servers import ask, until

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    import anthropic
    import openai

ASKED: list[Any] = [{"role": "user", "content": "Repeat these words:\n\none two three"}]
SAID = "one two three"
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"lines": {"type": "integer"}},
            "required": ["lines"],
        },
    },
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gateway_site.Site]:
    """A host with qwen hot, and a peer with nothing."""
    with gateway_site.two(tmp_path_factory.mktemp("site")) as (one, _):
        assert one.switch("qwen")[0] == 0
        yield one


@pytest.fixture(scope="module")
def url(site: gateway_site.Site) -> str:
    """The open door, where a key is needed."""
    door = site.spark.door("open")
    return f"http://{door.address}:{door.port}"


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


@pytest.mark.parametrize("name", ["qwen", "coder", "auto", "Qwen/Q"])
def test_a_chat_whole_and_streamed(url: str, name: str) -> None:
    answer = of_openai(url).chat.completions.create(model=name, messages=ASKED)
    assert (answer.choices[0].message.content, answer.model) == (SAID, "Qwen/Q")
    stream = of_openai(url).chat.completions.create(model=name, messages=ASKED, stream=True)
    pieces = [piece.choices[0].delta.content or "" for piece in stream]
    assert "".join(pieces) == SAID and len(pieces) > 3


def test_a_tool_is_called(url: str) -> None:
    asked: list[Any] = [{"role": "user", "content": "Look at 12 lines."}]
    answer = of_openai(url).chat.completions.create(model="qwen", messages=asked, tools=[TOOL])
    [call] = answer.choices[0].message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("look", '{"lines": 12}')  # type: ignore[union-attr]


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


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_who_closes_a_stream_ends_the_engines_work(
    site: gateway_site.Site, url: str, package: str
) -> None:
    more: dict[str, Any] = {"model": "qwen", "messages": ASKED, "max_tokens": 20_000}
    more |= {"stream": True, "extra_body": {"ignore_eos": True}}
    stream: Any = (
        of_openai(url).chat.completions.create(**more)
        if package == "openai"
        else of_anthropic(url).messages.create(**more)
    )
    next(iter(stream))

    def running() -> float:
        text = ask(f"{site.engine_url('qwen')}/metrics").body.decode()
        [line] = [each for each in text.splitlines() if "num_requests_running{" in each]
        return float(line.split()[-1])

    assert running() == 1
    stream.close()
    until(lambda: running() == 0, "the engine has stopped")
