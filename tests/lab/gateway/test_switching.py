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


def last_switch(host: Host) -> dict[str, Any]:
    return json.loads(host.root("cat /var/log/lockstep/switches.json"))[0]


def test_a_stream_waits_for_a_cold_model_through_the_ordinary_switch(host):
    assert host.switch("none").code == 0
    body = {"model": "qwen", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    status, text = curl(host, "/v1/chat/completions", json.dumps({**body, "stream": True}))
    assert status == 200
    assert text.startswith(": waiting\n\n")
    assert text.rstrip().endswith("data: [DONE]")
    assert host.active() == {QWEN}
    record = last_switch(host)
    assert (record["person"], record["code"]) == ("local, by the gateway", 0)


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
    assert last_switch(host)["code"] == 0


def test_who_may_operate_switches_and_sees_the_phases(stack, host):
    assert host.switch("mistral").code == 0
    key = a_key(stack, INVENTORY, "olga", "--role", "operate")
    status, text = curl(host, "/switch", '{"model": "qwen"}', key)
    end_key(stack, INVENTORY, "olga")
    assert status == 200, text
    events = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
    phases = list(dict.fromkeys(event["phase"] for event in events[:-1]))
    # First stands how long it usually takes: tests before have switched to it.
    assert [*phases[:2], phases[-1]] == ["check", "stop", "done"], events
    assert events[-1]["code"] == 0 and "qwen is hot" in events[-1]["said"]
    assert host.active() == {QWEN}
    assert last_switch(host)["person"] == "olga, by the gateway"


def test_nobody_else_may_ask_for_a_switch(host):
    path = Path("/run/lockstep-gateway-switch.sock")
    assert host.root(f"stat -c %U:%a {path}").strip() == "lockstep-gateway:600"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
    answer = host.run(f"python3 -c {shlex.quote(connect)}")
    assert answer.code == 1 and "PermissionError" in answer.err
