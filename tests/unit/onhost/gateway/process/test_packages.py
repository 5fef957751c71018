"""The real `openai` and `anthropic` packages, and the shapes that other programs send.

At the gateway, before stand-ins that refuse what the chat templates of their models refuse. The
programs themselves: `make clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from gateway_process import KEYS, Spark, hot
from templated_engines import templated_spark

from lockstep.clients.check import ClientResult, GatewayAddress, Shape, ask_all, shapes

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    import anthropic
    import openai

ASKED: list[Any] = [{"role": "user", "content": "Repeat these words:\n\none two three"}]
SAID = "one two three"
TOOL_USE: dict[str, Any] = {"id": "toolu_0001", "name": "look", "input": {"city": "Rome"}}


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
    with pytest.raises(anthropic.APIStatusError) as error:
        of_anthropic(url, key).messages.create(model=model, messages=ASKED, max_tokens=5)
    body: Any = error.value.body
    assert (error.value.status_code, body["type"], body["error"]["type"]) == (
        status,
        "error",
        kind,
    )


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
    engines: tuple[Spark, dict[str, str]], heat: Callable[[str], None], url: str, model: str
) -> None:
    heat(model)
    assert GatewayAddress(url, KEYS["use"]).hot() == model
    # The stand-in reads no chunks.
    chosen_shapes = [shape for shape in shapes() if not shape.chunks]
    refused_rows = [
        row for row in ask_each(engines[1][model], chosen_shapes) if row.outcome == "refused"
    ]
    assert {row.program for row in refused_rows} == REFUSED[model]
    rows = ask_each(url, shapes())
    assert [row for row in rows if row.outcome not in ("works", "evened")] == []
    evened_pairs = {(row.program, row.shape) for row in rows if row.outcome == "evened"}
    assert evened_pairs >= {(row.program, row.shape) for row in refused_rows}


def ask_each(url: str, chosen_shapes: Sequence[Shape]) -> list[ClientResult]:
    return list(ask_all(GatewayAddress(url, KEYS["use"]), chosen_shapes, pictures=True))


def test_both_packages_talk_to_a_template_that_alternates(
    heat: Callable[[str], None], url: str
) -> None:
    heat("mistral")
    twice = [{"role": "user", "content": "I have a wish."}, *ASKED]
    chat = of_openai(url).chat.completions.create(model="auto", messages=twice)
    assert chat.choices[0].message.content == SAID
    opening: list[Any] = [{"role": "developer", "content": "Be brief."}, *twice]
    response = of_openai(url).responses.create(model="auto", instructions="x", input=opening)
    assert response.output_text == SAID
    with of_openai(url).responses.stream(model="auto", input=opening) as stream:
        assert stream.get_final_response().output_text == SAID
    messages: list[Any] = [
        *ASKED,
        {"role": "assistant", "content": [{**TOOL_USE, "type": "tool_use"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": TOOL_USE["id"], "content": "r"},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]
    client = of_anthropic(url)
    message = client.messages.create(model="auto", messages=messages, max_tokens=9)
    assert message.stop_reason == "max_tokens"
    assert client.messages.count_tokens(model="auto", messages=messages).input_tokens > 10
