"""The gateway on real hosts, before the real vLLM, whose chat template refuses repeated roles."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Answer, Host, Stack, until

STRICT = {"strict": {"recipe": "tiny-qwen3-strict", "unit": "vllm-strict", "sense": "record"}}
MODEL = "tiny-qwen3-strict"
API, ENGINE = 8010, 9010
UNIT, SGLANG = "vllm-strict.service", "sglang-mistral4.service"
GATEWAY, GATEWAY_PORT = "lockstep-gateway.service", 8090
SGLANG_API, SGLANG_ENGINE = 30000, 31000
KEYS = "/etc/lockstep/gateway/keys.json"

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TWO_IN_A_ROW = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Here is a file."},
    {"role": "user", "content": [{"type": "text", "text": "What does it say?"}]},
]
MERGED = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Here is a file."},
            {"type": "text", "text": "\n\n"},
            {"type": "text", "text": "What does it say?"},
        ],
    },
]
ONE = ("-y", "--limit", "spark1")
REFUSED = "conversation roles must alternate"


@pytest.fixture(scope="module")
def inventory(stack: Stack) -> Path:
    """The lab's inventory with one target more."""
    return stack.inventory("strict", targets=STRICT)


@pytest.fixture(scope="module")
def host(stack: Stack, first: object, inventory: Path) -> Iterator[Host]:
    """spark1 with the strict model hot; as it was afterwards."""
    stack.good_deploy(*ONE, inventory=inventory)
    answer = stack.one.switch("strict")
    assert answer.code == 0, answer.text
    yield stack.one
    stack.one.switch("none")
    # Of all hosts: only then is it a generation.
    stack.good_deploy()


def request(messages: list[dict[str, Any]], **more: Any) -> str:
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, **more}
    return shlex.join(["-H", "Content-Type: application/json", "-d", json.dumps(body)])


def post(host: Host, port: int, messages: list[dict[str, Any]], **more: Any) -> tuple[int, str]:
    """HTTP status and text of one chat completion."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    answer = host.look(
        f"curl -sS --max-time 120 -w '\\n%{{http_code}}' {request(messages, **more)} {url}"
    )
    text, _, status = answer.out.rpartition("\n")
    return int(status), text


def spoken(text: str) -> str:
    return str(json.loads(text)["choices"][0]["message"]["content"])


def test_the_engine_refuses_two_messages_of_one_role_and_its_door_helps(host: Host) -> None:
    status, text = post(host, ENGINE, TWO_IN_A_ROW)
    assert status == 400 and REFUSED in text
    status, text = post(host, API, TWO_IN_A_ROW)
    assert status == 200, text
    # Not only accepted: the engine was asked exactly what the rules say.
    assert spoken(text) == spoken(post(host, ENGINE, MERGED)[1])


def test_calls_and_results_of_tools_stay_as_they_are(host: Host) -> None:
    talk = [
        {"role": "user", "content": "Look."},
        {"role": "user", "content": "Now."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "assistant", "content": "Done."},
    ]
    status, text = post(host, API, [*talk, {"role": "user", "content": "Thanks."}])
    assert status == 200, text
    merged = [{"role": "user", "content": "Look.\n\nNow."}, *talk[2:]]
    asked = [*merged, {"role": "user", "content": "Thanks."}]
    assert spoken(text) == spoken(post(host, ENGINE, asked)[1])


def test_what_merging_cannot_help_is_refused_in_the_engines_own_words(host: Host) -> None:
    wrong = [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "No."}]
    assert post(host, API, wrong) == post(host, ENGINE, wrong)
    assert post(host, API, wrong)[0] == 400
    asked = [{"role": "user", "content": "a"}]
    unknown = post(host, API, asked, model="nobody")
    assert unknown[0] == 404 and unknown == post(host, ENGINE, asked, model="nobody")


def test_a_stream_arrives_as_events(host: Host) -> None:
    events = stream(host, API, TWO_IN_A_ROW).out.split("\n\n")
    assert events[-2] == "data: [DONE]"
    pieces = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    said = "".join(piece["choices"][0]["delta"].get("content") or "" for piece in pieces)
    assert said == spoken(post(host, API, TWO_IN_A_ROW)[1])
    assert len(pieces) > 5


def stream(host: Host, port: int, messages: list[dict[str, Any]], then: str = "cat") -> Answer:
    body = request(messages, stream=True, ignore_eos=True)
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return host.look(f"curl -sSN --max-time 120 {body} {url} | {then}")


def test_the_one_address_serves_what_is_hot_under_each_of_its_names(host: Host) -> None:
    for name in ("strict", MODEL, "auto"):
        status, text = post(host, GATEWAY_PORT, TWO_IN_A_ROW, model=name)
        assert status == 200, (name, text)
        assert spoken(text) == spoken(post(host, ENGINE, MERGED)[1])
    status, text = post(host, GATEWAY_PORT, TWO_IN_A_ROW, model="qwen")
    assert status == 503 and "strict" in text


def test_requests_at_once_are_answered_each(host: Host) -> None:
    url = f"http://127.0.0.1:{API}/v1/chat/completions"
    one = f"curl -sS -o /dev/null -w '%{{http_code}}\\n' {request(TWO_IN_A_ROW)} {url}"
    answer = host.look(f"for n in $(seq 12); do {one} & done; wait")
    assert answer.out.split() == ["200"] * 12


def test_who_hangs_up_ends_the_generation(host: Host) -> None:
    before = metric(host, "generation_tokens_total")
    # More than a machine that is busy with other things generates before it has noticed.
    more = {"n": 16, "temperature": 1, "max_tokens": 900}
    body = request(TWO_IN_A_ROW, stream=True, ignore_eos=True, **more)
    url = f"http://127.0.0.1:{API}/v1/chat/completions"
    # head leaves after the first bytes, and curl with it.
    host.look(f"curl -sSN {body} {url} | head -c 300 >/dev/null")
    until(lambda: metric(host, "num_requests_running") == 0, "no request is running")
    assert 0 < metric(host, "generation_tokens_total") - before < 16 * 900


def metric(host: Host, name: str) -> float:
    """One of vLLM's own figures."""
    text = host.look(f"curl -sS http://127.0.0.1:{API}/metrics").out
    found = re.search(rf"^vllm:{name}{{.*}} (\S+)", text, re.MULTILINE)
    assert found, text[:500]
    return float(found[1])


def test_everything_else_of_the_api_is_the_engines(host: Host) -> None:
    for path in ("/version", "/health", "/v1/nothing?a=%20b"):
        ask = "curl -sS -o - -w '%{{http_code}}' http://127.0.0.1:{}{}"
        through = host.look(ask.format(API, path)).out
        assert through == host.look(ask.format(ENGINE, path)).out
    assert host.get(f"http://127.0.0.1:{API}/v1/models")["data"][0]["id"] == MODEL


def test_status_and_units_agree(host: Host) -> None:
    target = host.status()["targets"]["strict"]
    assert target["state"] == "hot" and target["ready"] is True
    assert target["url"] == f"http://127.0.0.1:{API}"
    assert host.show(GATEWAY, "ActiveState") == "active"
    assert host.show(GATEWAY, "UnitFileState") == "enabled"
    assert host.show(GATEWAY, "User") == "lockstep-gateway"
    listening = host.root(f"ss -Hltn 'sport = :{API} or sport = :{ENGINE}'")
    assert {line.split()[3] for line in listening.splitlines()} == {
        f"127.0.0.1:{API}",
        f"127.0.0.1:{ENGINE}",
    }


def test_a_crash_of_the_gateway_restarts_only_the_gateway(host: Host) -> None:
    engine, gateway = host.show(UNIT, "MainPID"), host.show(GATEWAY, "MainPID")
    host.root(f"kill -KILL {gateway}")
    until(
        lambda: (
            host.show(GATEWAY, "ActiveState") == "active"
            and host.show(GATEWAY, "MainPID") != gateway
        ),
        "the gateway is back",
    )
    assert post(host, API, TWO_IN_A_ROW)[0] == 200
    assert host.show(UNIT, "MainPID") == engine
    assert host.show(UNIT, "NRestarts") == "0"


def test_a_second_deploy_changes_nothing(stack: Stack, host: Host, inventory: Path) -> None:
    gateway = host.show(GATEWAY, "MainPID")
    assert stack.good_deploy(*ONE, inventory=inventory).changed == set()
    assert host.show(GATEWAY, "MainPID") == gateway


def test_a_key_that_changes_restarts_nothing_and_no_deploy_takes_it_away(
    stack: Stack, host: Host, inventory: Path
) -> None:
    gateway = host.show(GATEWAY, "MainPID")
    host.root(f"install -m 0640 -g lockstep-gateway /dev/null {KEYS}; echo '{{}}' > {KEYS}")
    assert stack.good_deploy(*ONE, inventory=inventory).changed == set()
    assert host.root(f"stat -c '%a %U %G' {KEYS}; cat {KEYS}; rm {KEYS}").split() == [
        *("640", "root", "lockstep-gateway"),
        "{}",
    ]
    assert host.show(GATEWAY, "MainPID") == gateway


@pytest.fixture
def mistral(host: Host) -> Host:
    """The host with Mistral on SGLang hot: a stand-in, which refuses as its template does there."""
    answer = host.switch("mistral")
    assert answer.code == 0, answer.text
    return host


def test_another_target_answers_at_its_own_door_and_the_first_one_says_so(mistral: Host) -> None:
    status, text = post(mistral, API, TWO_IN_A_ROW)
    assert status == 503 and "strict is loading or down" in text
    assert accepts_two_in_a_row(mistral)
    model = model_of(mistral)
    status, text = post(mistral, SGLANG_ENGINE, TWO_IN_A_ROW, model=model)
    assert status == 400 and "alternate" in text


def test_the_door_stays_open_while_its_engine_is_stopped(mistral: Host) -> None:
    gateway = mistral.show(GATEWAY, "MainPID")
    mistral.root(f"systemctl stop {SGLANG}")
    assert post(mistral, SGLANG_API, TWO_IN_A_ROW)[0] == 503
    mistral.root(f"systemctl start {SGLANG}")
    until(lambda: accepts_two_in_a_row(mistral), "the engine is asked again")
    assert mistral.show(GATEWAY, "MainPID") == gateway


def test_a_crash_of_the_engine_leaves_the_gateway_as_it_is(mistral: Host) -> None:
    engine, gateway = mistral.show(SGLANG, "MainPID"), mistral.show(GATEWAY, "MainPID")
    mistral.root(f"systemctl kill --signal=KILL {SGLANG}")
    until(
        lambda: (
            mistral.show(SGLANG, "MainPID") not in (engine, "0")
            and mistral.show(SGLANG, "ActiveState") == "active"
        ),
        "the engine is back",
        300,
    )
    until(lambda: accepts_two_in_a_row(mistral), "the engine is asked again")
    assert mistral.show(GATEWAY, "MainPID") == gateway


def test_without_a_model_every_door_says_that_none_is_hot(mistral: Host) -> None:
    assert mistral.switch("none").code == 0
    for port in (SGLANG_API, GATEWAY_PORT):
        status, text = post(mistral, port, TWO_IN_A_ROW, model="mistral")
        assert status == 503 and "error" in json.loads(text), port


def model_of(host: Host) -> str:
    """The name by which Mistral's engine is asked."""
    return str(host.get(f"http://127.0.0.1:{SGLANG_ENGINE}/v1/models")["data"][0]["id"])


def accepts_two_in_a_row(host: Host) -> bool:
    """Whether Mistral's door answers what its engine refuses."""
    return post(host, SGLANG_API, TWO_IN_A_ROW, model=model_of(host))[0] == 200
