"""A target that the inventory opens asks for a key, made on the host and shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from stack import Deployed, Host, Stack, until

ONE = ("-y", "--limit", "spark1")
PORT = 30001
FILE = "/etc/lockstep/secrets/api-key"
NEEDLE = "/run/needle"


@pytest.fixture(scope="module")
def opened(stack: Stack, first: Deployed) -> Iterator[tuple[Stack, str]]:
    """spark1 with `qwen` open to others and hot, and what that deploy said."""
    assert first.code == 0, first.output[-8000:]
    inventory = stack.inventory("open", targets={"qwen": {"bind": "0.0.0.0"}})
    done = stack.good_deploy(*ONE, "-vvv", "--diff", inventory=inventory)
    assert "Services | Make the API key of open targets once" in done.changed
    answer = stack.one.switch("qwen")
    assert answer.code == 0, answer.text
    stack.one.root(f"umask 077; cat {FILE} > {NEEDLE}")
    yield stack, done.output
    stack.one.root(f"rm -f {NEEDLE}")
    stack.one.switch("none")
    stack.good_deploy(*ONE)
    left = stack.one.root(f"ls {FILE} 2>/dev/null || true")
    assert left == "", "the key of a port that is closed"


def key(host: Host) -> str:
    """The key, read as only root can."""
    return host.root(f"cat {FILE}").strip()


def asked(opened: tuple[Stack, str], path: str, header: str = "X-None: 1") -> str:
    """The status that spark1's engine answers to spark2, a stranger."""
    stack, _ = opened
    address = stack.one.root("hostname -I").split()[0]
    return stack.two.root(
        f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 -H '{header}'"
        f" http://{address}:{PORT}{path}"
    )


def test_a_stranger_is_refused_and_whoever_has_the_key_is_served(
    opened: tuple[Stack, str],
) -> None:
    bearer = f"Authorization: Bearer {key(opened[0].one)}"
    for path in ("/v1/models", "/metrics", "/invocations"):
        assert asked(opened, path) == "401", path
    assert asked(opened, "/v1/models", "Authorization: Bearer sk-guessed") == "401"
    assert asked(opened, "/v1/models", bearer) == "200"
    assert asked(opened, "/metrics", bearer) == "200"
    assert asked(opened, "/health") == "200"


def test_the_engine_itself_is_on_loopback_only(opened: tuple[Stack, str]) -> None:
    one = opened[0].one
    listening = one.root(f"ss -Hltn 'sport = :{PORT} or sport = :{PORT + 1000}'").split()[3::5]
    assert sorted(listening) == ["0.0.0.0:30001", "127.0.0.1:31001"]


def test_status_and_wedge_watch_have_the_key_and_open_webui_needs_none(
    opened: tuple[Stack, str],
) -> None:
    one = opened[0].one
    found = one.status()
    hot = found["targets"]["qwen"]
    assert (found["hot"], hot["ready"]) == ("qwen", True)
    assert hot["detail"].startswith("a token in ")
    one.root("systemctl start lockstep-wedge.service")
    given = json.loads(one.root("docker inspect open-webui"))[0]["Config"]["Env"]
    # It asks the gateway on loopback, where nobody is asked for one.
    assert "OPENAI_API_KEYS=none" in given


@pytest.mark.parametrize(
    "place",
    [
        "systemctl show '*.service'; systemctl cat '*.service'",
        "journalctl --no-pager --all -o export",
        "ps -efww",
        "find /etc /usr/local /data /var/log -type f -size -4M ! -path '*/secrets/*'"
        " -exec cat {} +",
    ],
)
def test_nothing_but_the_file_holds_the_key(opened: tuple[Stack, str], place: str) -> None:
    one = opened[0].one
    found = one.root(f"{{ {place}; }} 2>/dev/null | grep -a -c -F -f {NEEDLE} || true")
    assert found.strip() == "0"
    assert key(one) not in opened[1]
    assert one.root(f"stat -c '%a %U %G' {FILE}").split() == ["600", "root", "root"]


def test_a_key_that_was_removed_is_made_anew_and_the_old_one_is_worth_nothing(
    opened: tuple[Stack, str],
) -> None:
    stack, _ = opened
    old = key(stack.one)
    stack.one.root(f"rm {FILE}")
    inventory = stack.folder / "open/lab.py"
    done = stack.good_deploy(*ONE, inventory=inventory)
    assert done.changed == {"Services | Make the API key of open targets once"}
    assert asked(opened, "/v1/models", f"Authorization: Bearer {old}") == "401"
    new = f"Authorization: Bearer {key(stack.one)}"
    until(lambda: asked(opened, "/v1/models", new) == "200", "the new key is in force")
