"""Refusals as the real `openai` and `anthropic` packages read them, and shapes of other programs.

At the gateway, before stand-ins that refuse what the chat templates of their models refuse. The
packages before the real vLLM: tests/lab/engines/test_real_vllm.py. The programs themselves:
`make clients`.
"""

import pytest
from gateway_process import KEYS, hot
from templated_engines import templated_spark

from lockstep.clients.check import GatewayAddress, ask_all, shapes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A host, its open listener, which wants a key, and the address of each of its engines."""
    with templated_spark(tmp_path_factory.mktemp("host")) as (spark, engine_urls):
        listener = spark.listener("open")
        yield spark, f"http://{listener.address}:{listener.port}", engine_urls


def test_refusals_are_the_packages_own_errors(host):
    # Imported late: each worker imports this file, one of them runs its tests.
    import anthropic
    import openai

    spark, url, _ = host
    hot(spark, "qwen")
    asked = [{"role": "user", "content": "Hello."}]
    for model, key, status, kind, words in (
        ("nobody", KEYS["use"], 404, "not_found_error", "nobody"),
        ("qwen", "sk-guessed", 401, "authentication_error", "a key is needed"),
        ("mistral", KEYS["use"], 503, "api_error", "qwen is hot"),
    ):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        with pytest.raises(openai.APIStatusError, match=words) as refusal:
            client.chat.completions.create(model=model, messages=asked)
        assert refusal.value.status_code == status
        # Messages have another form.
        client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
        with pytest.raises(anthropic.APIStatusError) as error:
            client.messages.create(model=model, messages=asked, max_tokens=5)
        body = error.value.body
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


@pytest.mark.parametrize("model", REFUSED)
def test_what_an_engine_refuses_works_through_the_gateway(host, model):
    spark, url, engine_urls = host
    hot(spark, model)
    gateway, engine = (GatewayAddress(at, KEYS["use"]) for at in (url, engine_urls[model]))
    assert gateway.hot() == model
    # The stand-in reads no chunks.
    chosen_shapes = [shape for shape in shapes() if not shape.chunks]
    rows = ask_all(engine, chosen_shapes, pictures=True)
    refused_pairs = {(row.program, row.shape) for row in rows if row.outcome == "refused"}
    assert {program for program, _ in refused_pairs} == REFUSED[model]
    rows = list(ask_all(gateway, shapes(), pictures=True))
    assert [row for row in rows if row.outcome not in ("works", "evened")] == []
    assert refused_pairs <= {(row.program, row.shape) for row in rows if row.outcome == "evened"}
