"""The real `openai` and `anthropic` packages through the gateway, before the real vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anthropic
import openai
import pytest
from gateway_soaking import a_key, end_key
from stack import Deployed, Host, Stack, until

from lab import RECIPES
from lab.host import connection, network

T = TypeVar("T")
ONE = ("-y", "--limit", "spark1")
ENGINE = 8000
MODEL = "tiny-qwen3"
ASKED: list[Any] = [{"role": "user", "content": "Say something."}]
# Whoever is made to call it can say one thing, and so does a model of random weights. vLLM holds
# a call to its schema only where the tool is `strict` (ran on 0.32.0).
WHERE: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
# A parser of plain JSON, and no room for a random model to fill with blanks.
PARSER = (
    "    --enable-auto-tool-choice --tool-call-parser granite \\\n"
    "    --structured-outputs-config.backend=xgrammar \\\n"
    "    --structured-outputs-config.disable_any_whitespace=true \\\n"
)


@dataclass(frozen=True)
class Clients:
    """Both packages with a key at the open door of a host where `tiny` is hot."""

    host: Host
    url: str
    key: str
    run: Callable[[Callable[[], Any]], Any]

    def openai(self, key: str = "") -> openai.OpenAI:
        """The package's client; it asks once only."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, max_retries=0)

    def anthropic(self, key: str = "") -> anthropic.Anthropic:
        """The package's client; it asks once only."""
        return anthropic.Anthropic(base_url=self.url, api_key=key or self.key, max_retries=0)


@pytest.fixture(scope="module")
def clients(
    stack: Stack, first: Deployed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clients]:
    """spark1 with an open gateway and `tiny` hot, which calls tools; as it was afterwards."""
    assert first.code == 0, first.output[-8000:]
    recipes = tmp_path_factory.mktemp("recipes")
    plain = Path("lab/recipes/tiny-qwen3.yaml").read_text()
    before, command, after = plain.partition("    --served-model-name")
    (recipes / "tiny-tools.yaml").write_text(before + PARSER + command + after)
    inventory = stack.inventory(
        "clients",
        gateway={"bind": "0.0.0.0", "plain": True},
        recipe_folders=(RECIPES, str(recipes)),
        targets={"tiny": {"recipe": "tiny-tools"}},
    )
    stack.good_deploy(*ONE, inventory=inventory)
    key = a_key(stack, inventory, "clara")
    answer = stack.one.switch("tiny")
    assert answer.code == 0, answer.text
    description = connection.load(stack.name)
    [address] = [host.address for host in description.hosts if host.name == "spark1"]
    # A thread of its own is in the lab's network; this process is not.
    with ThreadPoolExecutor(1, initializer=network.enter, initargs=(description.namespace,)) as lab:
        yield Clients(
            stack.one,
            f"http://{address}:8090",
            key,
            lambda work: lab.submit(work).result(),
        )
    end_key(stack, inventory, "clara")
    stack.one.switch("none")
    # Of all hosts: only then is it a generation.
    stack.good_deploy()


def metric(host: Host, name: str) -> float:
    """One of vLLM's own figures."""
    text = host.look(f"curl -sS http://127.0.0.1:{ENGINE}/metrics").out
    found = re.search(rf"^vllm:{name}{{.*}} (\S+)", text, re.MULTILINE)
    assert found, text[:500]
    return float(found[1])


def test_the_list_of_models(clients: Clients) -> None:
    listed = clients.run(lambda: list(clients.openai().models.list()))
    assert {model.id for model in listed} >= {"tiny", "qwen", "mistral", "auto"}
    one = clients.run(lambda: clients.openai().models.retrieve("tiny"))
    assert one.id == "tiny" and one.owned_by == "lockstep"


@pytest.mark.parametrize("name", ["tiny", MODEL, "auto"])
def test_a_chat_whole_and_streamed(clients: Clients, name: str) -> None:
    def whole() -> Any:
        return clients.openai().chat.completions.create(
            model=name, messages=ASKED, max_tokens=12, temperature=0
        )

    def streamed() -> list[Any]:
        stream = clients.openai().chat.completions.create(
            model=name,
            messages=ASKED,
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        return list(stream)

    answer, pieces = clients.run(whole), clients.run(streamed)
    said = answer.choices[0].message.content
    assert said and answer.model == MODEL and answer.usage.completion_tokens == 12
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces[:-1]) == said
    assert pieces[-1].usage.completion_tokens == 12
    # The engine gives the same to who asks it itself.
    direct = clients.host.complete(ENGINE, MODEL)
    assert direct["model"] == answer.model


def test_responses_and_completions(clients: Clients) -> None:
    text = clients.run(
        lambda: clients.openai().completions.create(model="tiny", prompt="One", max_tokens=5)
    )
    assert text.choices[0].text and text.usage.completion_tokens == 5
    response = clients.run(
        lambda: clients.openai().responses.create(model="tiny", input="One", max_output_tokens=5)
    )
    assert response.output_text and response.model == MODEL


def test_a_tool_is_called_whole_and_streamed(clients: Clients) -> None:
    named: Any = {"type": "function", "function": {"name": "look"}}
    tool: Any = {
        "type": "function",
        "function": {"name": "look", "parameters": WHERE, "strict": True},
    }

    def asked(**more: Any) -> Any:
        return clients.openai().chat.completions.create(
            model="tiny", messages=ASKED, max_tokens=64, temperature=0, tools=[tool], **more
        )

    (call,) = clients.run(lambda: asked(tool_choice=named).choices[0].message.tool_calls)
    assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"city": "Rome"})
    pieces = clients.run(lambda: list(asked(tool_choice=named, stream=True)))
    calls = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or ()]
    assert [call.function.name for call in calls if call.function.name] == ["look"]
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == {"city": "Rome"}
    # Left to itself it talks.
    assert clients.run(lambda: asked().choices[0].message.content)


def test_a_tool_is_called_in_a_message(clients: Clients) -> None:
    tool: Any = {"name": "look", "description": "Look.", "input_schema": WHERE, "strict": True}
    message = clients.run(
        lambda: clients.anthropic().messages.create(
            model="tiny",
            messages=ASKED,
            max_tokens=64,
            tools=[tool],
            tool_choice={"type": "tool", "name": "look"},
        )
    )
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert (use.name, use.input) == ("look", {"city": "Rome"})


def test_refusals_come_as_the_packages_own_errors(clients: Clients) -> None:
    def chat(model: str, key: str = "", **more: Any) -> Any:
        return clients.run(
            lambda: clients.openai(key).chat.completions.create(model=model, messages=ASKED, **more)
        )

    with pytest.raises(openai.NotFoundError, match="nobody"):
        chat("nobody")
    with pytest.raises(openai.AuthenticationError, match="a key is needed"):
        chat("tiny", "guessed")
    with pytest.raises(openai.InternalServerError, match="tiny is hot") as cold:
        chat("qwen")
    assert cold.value.status_code == 503
    assert int(cold.value.response.headers["retry-after"]) > 0
    with pytest.raises(openai.BadRequestError, match="1024"):
        chat("tiny", max_tokens=5000)


def test_messages_whole_streamed_and_counted(clients: Clients) -> None:
    def whole() -> Any:
        return clients.anthropic().messages.create(model="tiny", messages=ASKED, max_tokens=12)

    def streamed() -> Any:
        with clients.anthropic().messages.stream(
            model="tiny", messages=ASKED, max_tokens=12
        ) as stream:
            text = "".join(stream.text_stream)
            return text, stream.get_final_message()

    answer = clients.run(whole)
    assert answer.content[0].text and answer.stop_reason == "max_tokens"
    text, final = clients.run(streamed)
    assert text == final.content[0].text and final.usage.output_tokens == 12
    counted = clients.run(
        lambda: clients.anthropic().messages.count_tokens(model="tiny", messages=ASKED)
    )
    assert counted.input_tokens == answer.usage.input_tokens


def test_refusals_of_messages_have_the_other_form(clients: Clients) -> None:
    def ask(model: str, key: str = "") -> Any:
        return clients.run(
            lambda: clients.anthropic(key).messages.create(
                model=model, messages=ASKED, max_tokens=5
            )
        )

    for model, key, kind, status in (
        ("nobody", "", "not_found_error", 404),
        ("tiny", "guessed", "authentication_error", 401),
        ("qwen", "", "api_error", 503),
    ):
        with pytest.raises(anthropic.APIStatusError) as refused:
            ask(model, key)
        body: Any = refused.value.body
        assert (refused.value.status_code, body["type"], body["error"]["type"]) == (
            status,
            "error",
            kind,
        )
        assert len(body["error"]["message"].split()) > 3


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_who_closes_a_stream_ends_the_engines_work(clients: Clients, package: str) -> None:
    before = metric(clients.host, "generation_tokens_total")
    more: dict[str, Any] = {"model": "tiny", "messages": ASKED, "max_tokens": 900}
    more |= {"stream": True, "extra_body": {"ignore_eos": True}}

    def leave() -> None:
        stream: Any = (
            clients.openai().chat.completions.create(**more)
            if package == "openai"
            else clients.anthropic().messages.create(**more)
        )
        next(iter(stream))
        stream.close()

    clients.run(leave)
    until(lambda: metric(clients.host, "num_requests_running") == 0, "no request is running")
    assert metric(clients.host, "generation_tokens_total") - before < 900
