"""A model that the inventory opens asks for a key, made on the host and shown nowhere."""

import json

import pytest
from stack import Host, Stack

ONE = ("-y", "--limit", "spark1")
PORT = 30001
FILE = "/etc/lockstep/secrets/api-key"
NEEDLE = "/run/needle"


@pytest.fixture(scope="module")
def open_engine(stack, first):
    """spark1 with `qwen` open to others and hot, and the output of that deploy."""
    inventory = stack.inventory("open", models={"qwen": {"bind": "0.0.0.0"}})
    result = stack.good_deploy(*ONE, "-vvv", "--diff", inventory=inventory)
    assert "Services | Make the API key of open models once" in result.changed_operations
    answer = stack.spark1.switch("qwen")
    assert answer.code == 0, answer.text
    stack.spark1.root(f"umask 077; cat {FILE} > {NEEDLE}")
    yield stack, result.output
    stack.spark1.root(f"rm -f {NEEDLE}")
    stack.spark1.switch("none")
    stack.good_deploy(*ONE)
    listing = stack.spark1.root(f"ls {FILE} 2>/dev/null || true")
    assert listing == "", "the key of a port that is closed"


def key(host: Host) -> str:
    """The key, read as only root can."""
    return host.root(f"cat {FILE}").strip()


def engine_status(open_engine: tuple[Stack, str], path: str, header: str = "X-None: 1") -> str:
    """The status that spark1's engine answers to spark2, a stranger."""
    stack, _ = open_engine
    return stack.two.root(
        f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 -H '{header}'"
        f" http://{stack.spark1.address}:{PORT}{path}"
    )


def test_a_stranger_is_refused_and_whoever_has_the_key_is_served(open_engine):
    bearer = f"Authorization: Bearer {key(open_engine[0].spark1)}"
    for path in ("/v1/models", "/metrics", "/invocations"):
        assert engine_status(open_engine, path) == "401", path
    assert engine_status(open_engine, "/v1/models", "Authorization: Bearer sk-guessed") == "401"
    assert engine_status(open_engine, "/v1/models", bearer) == "200"
    assert engine_status(open_engine, "/metrics", bearer) == "200"
    assert engine_status(open_engine, "/health") == "200"


def test_the_engine_itself_is_on_loopback_only(open_engine):
    host = open_engine[0].spark1
    listening = host.root(f"ss -Hltn 'sport = :{PORT} or sport = :{PORT + 1000}'").split()[3::5]
    assert sorted(listening) == ["0.0.0.0:30001", "127.0.0.1:31001"]


def test_status_and_wedge_watch_have_the_key_and_open_webui_needs_none(open_engine):
    host = open_engine[0].spark1
    status = host.status()
    hot = status["models"]["qwen"]
    assert (status["hot"], hot["ready"]) == ("qwen", True)
    assert hot["detail"].startswith("a token in ")
    host.root("systemctl start lockstep-wedge.service")
    environment = json.loads(host.root("docker inspect open-webui"))[0]["Config"]["Env"]
    # It asks the gateway on loopback, where nobody is asked for one.
    assert "OPENAI_API_KEYS=none" in environment


def test_nothing_but_the_file_holds_the_key(open_engine):
    stack, output = open_engine
    files = "/etc /usr/local /data /var/log ! -path '*/secrets/*'"
    assert stack.spark1.places_with(NEEDLE, files) == []
    assert key(stack.spark1) not in output
    assert stack.spark1.root(f"stat -c '%a %U %G' {FILE}").split() == ["600", "root", "root"]
