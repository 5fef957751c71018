"""Switches that come through the gateway of a host: by a request, and by a person with a key."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from stack import INVENTORY, Host, a_key, end_key, until

FILE = "/etc/lockstep/gateway.json"
#: That the inventory's values come into the file: tests/unit/units/test_gateway_unit.py.
SWAPPING = (
    's/"swap_on_request": false/"swap_on_request": true/;'
    ' s/"least_hot_s": [0-9]*/"least_hot_s": 0/; s/"keepalive_s": [0-9]*/"keepalive_s": 1/'
)
RESTART = "systemctl restart lockstep-gateway"
URL = "http://127.0.0.1:8090"
QWEN = "vllm-qwen36.service"


@pytest.fixture(scope="module")
def host(stack, first):
    """spark1, whose gateway switches on request; undone afterwards."""
    stack.spark1.root(f"cp -a {FILE} /run/; sed -i '{SWAPPING}' {FILE}; {RESTART}")
    yield stack.spark1
    stack.spark1.switch("none")
    stack.spark1.root(f"mv /run/gateway.json {FILE}; {RESTART}")


def completion(host: Host, model: str) -> tuple[int, dict[str, Any]]:
    """HTTP status and answer of one chat completion."""
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    status, text = curl(host, "/v1/chat/completions", json.dumps(body))
    return status, json.loads(text)


def curl(host: Host, path: str, body: str, key: str = "") -> tuple[int, str]:
    """HTTP status and text of a POST to the gateway. The key is in no argument list there."""
    headers = "Content-Type: application/json\n"
    headers += f"Authorization: Bearer {key}\n" if key else ""
    answer = host.look(
        f"printf %s {shlex.quote(headers)} | curl -sS --max-time 300 -w '\\n%{{http_code}}' "
        f"-H @- -d {shlex.quote(body)} {URL}{path}"
    )
    text, _, status = answer.out.rpartition("\n")
    assert status.isdigit(), answer.text
    return int(status), text


def served_name(host: Host, model: str) -> str:
    """The name that an engine gives itself in its answers."""
    models = json.loads(host.root("cat /etc/lockstep/models.json"))["models"]
    return str(models[model]["served_name"])


def last_switch(host: Host) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(host.root("cat /var/log/lockstep/switches.json"))[0]
    return record


def test_a_stream_waits_for_a_cold_model_through_the_ordinary_switch(host):
    assert host.switch("none").code == 0
    body = {"model": "qwen", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    status, text = curl(host, "/v1/chat/completions", json.dumps({**body, "stream": True}))
    assert status == 200
    assert text.startswith(": waiting\n\n")
    assert text.rstrip().endswith("data: [DONE]")
    pieces = [line.removeprefix("data: ") for line in text.splitlines() if "{" in line]
    assert {json.loads(piece)["model"] for piece in pieces} == {served_name(host, "qwen")}
    assert host.active() == {QWEN}
    record = last_switch(host)
    assert (record["person"], record["model"], record["code"]) == (
        "local, by the gateway",
        "qwen",
        0,
    )


def test_a_gateway_that_is_killed_leaves_its_switch_alone(host):
    assert host.switch("qwen").code == 0
    request = host.begin(
        f"curl -sS --max-time 300 -H 'Content-Type: application/json' "
        f'-d \'{{"model": "mistral", "messages": [{{"role": "user", "content": "x"}}]}}\' '
        f"{URL}/v1/chat/completions"
    )
    until(lambda: host.status()["switching"], "the switch has begun")
    host.root("systemctl kill --signal=KILL lockstep-gateway")
    assert "Empty reply" in request.communicate(timeout=300)[0]
    until(lambda: host.status()["hot"] == "mistral", "mistral is hot")
    status, answer = completion(host, "mistral")
    assert (status, answer.get("model")) == (200, served_name(host, "mistral")), answer
    assert last_switch(host)["code"] == 0


@pytest.fixture(scope="module")
def key(stack, host):
    """The key of Olga, who may operate."""
    yield a_key(stack, INVENTORY, "olga", "--role", "operate")
    end_key(stack, INVENTORY, "olga")


def test_who_may_operate_switches_and_sees_the_phases(host, key):
    assert host.switch("mistral").code == 0
    status, text = curl(host, "/switch", '{"model": "qwen"}', key)
    assert status == 200, text
    events = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
    phases = list(dict.fromkeys(event["phase"] for event in events[:-1]))
    # First stands how long it usually takes: tests before have switched to it.
    assert [*phases[:2], phases[-1]] == ["check", "stop", "done"], events
    assert events[-1]["code"] == 0 and "qwen is hot" in events[-1]["said"]
    assert host.active() == {QWEN}
    assert last_switch(host)["person"] == "olga, by the gateway"


def test_a_model_that_nobody_asks_is_let_go(host):
    assert host.switch("qwen").code == 0
    host.root(f"""sed -i 's/"ttl_s": null/"ttl_s": 3/' {FILE}; {RESTART}""")
    until(lambda: last_switch(host)["person"] == "the gateway", "qwen is let go")
    assert last_switch(host)["words"] == "no model is hot"
    assert host.active() == set()


def test_the_key_is_in_no_journal_and_no_file(host, key):
    output = host.root(
        "journalctl -q -o cat;"
        " find /var/log/lockstep /run/lockstep/switch.log -type f -exec cat {} +"
    )
    assert key not in output


def test_nobody_else_may_ask_for_a_switch(host):
    path = Path("/run/lockstep-gateway-switch.sock")
    assert host.root(f"stat -c %U:%a {path}").strip() == "lockstep-gateway:600"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
    answer = host.run(f"python3 -c {shlex.quote(connect)}")
    assert answer.code == 1 and "PermissionError" in answer.err
