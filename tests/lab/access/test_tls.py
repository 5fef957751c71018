"""The gateway by TLS from another machine, and two gateways that answer for each other."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Deployed, Host, Stack, until

from lockstep.onhost.gateway import keys

PORT, LOCAL = 8443, 8090
UNIT = "lockstep-tls.service"
BOTH = ("spark1", "spark2")
#: On spark2, for curl: no command line holds the key.
HEADER = "/run/gateway-key-header"
SECRETS = "/etc/lockstep/secrets"
KEYS = "python3 /usr/local/lib/lockstep gateway-keys"
ANNOUNCED = "No host had an authority of certificates, so a new one was made."
CHAT = {"model": "qwen", "messages": [{"role": "user", "content": "x"}]}
LONG = {**CHAT, "stream": True, "ignore_eos": True, "max_tokens": 900}
#: Goes on until it is cut, however long that takes.
ENDLESS = {**LONG, "max_tokens": 20_000}


@pytest.fixture(scope="module")
def opened(stack: Stack, first: Deployed) -> Iterator[Stack]:
    """Both hosts with TLS and as each other's peers, and Qwen hot on spark2."""
    assert first.code == 0, first.output[-8000:]
    inventory = with_tls(stack)
    done = stack.good_deploy("-y", inventory=inventory)
    assert "Keys | Make keys for several hosts once" in done.changed
    assert ANNOUNCED in " ".join(done.output.split())
    one = ("--limit", stack.one.name)
    assert stack.good_deploy("-y", *one, inventory=inventory).changed == set()
    drift = stack.diff(*one, inventory=inventory)
    assert drift.returncode != 2 and "exposed port" not in drift.stdout, drift.stdout
    answer = stack.two.switch("qwen")
    assert answer.code == 0, answer.text
    give_key(stack)
    yield stack
    stack.two.root(f"rm -f {HEADER}")
    stack.two.switch("none")
    stack.good_deploy()
    for host in stack.hosts:
        paths = "/etc/lockstep/Caddyfile /etc/lockstep/authority.crt"
        paths += f" {SECRETS}/authority-* {SECRETS}/gateway-peers.key"
        assert host.root(f"ls {paths} 2>/dev/null || true") == "", "what only TLS and peers need"
        assert host.show(UNIT, "LoadState") == "not-found"


def with_tls(stack: Stack) -> Path:
    fabric = {f"{host.name}__fabric_address": address(host) for host in stack.hosts}
    gateway = {"bind": "0.0.0.0", "tls": "own", "peers": BOTH}
    return stack.inventory("tls", gateway=gateway, **fabric)


def address(host: Host) -> str:
    return host.root("hostname -I").split()[0]


def give_key(stack: Stack) -> None:
    """Tessa has a key for spark1, and spark2 sends it."""
    key = keys.new_key()
    entry = keys.Entry("tessa", keys.stamp(keys.utc()), keys.digest(key.encode()))
    document = json.dumps(keys.document([entry]))
    stack.one.root(f"echo '{document}' | {KEYS} take")
    stack.two.root(f"umask 077; echo 'Authorization: Bearer {key}' > {HEADER}")


def asked(stack: Stack, path: str, *options: str) -> tuple[str, str]:
    """What spark2, a stranger to spark1, gets from it by HTTPS: version with status, and body."""
    words = "curl -sS -w '\\n%{http_version} %{http_code}' --max-time 60 --http2"
    words += " --cacert /etc/lockstep/authority.crt "
    said = stack.two.root(f"{words} {' '.join(options)} https://{address(stack.one)}:{PORT}{path}")
    body, _, status = said.rpartition("\n")
    return status, body


def sent(document: object) -> str:
    return f"-H 'Content-Type: application/json' -d '{json.dumps(document)}'"


def test_a_stranger_with_a_key_is_answered_by_http_2_and_others_are_not(opened: Stack) -> None:
    status, body = asked(opened, "/v1/models", f"-H @{HEADER}")
    assert status == "2 200"
    assert {"qwen", "mistral"} <= {model["id"] for model in json.loads(body)["data"]}
    assert asked(opened, "/v1/models")[0] == "2 401"
    assert asked(opened, "/v1/models", "-H 'Authorization: Bearer lk-guessed'")[0] == "2 401"
    # What clients install before they have anything.
    status, body = asked(opened, "/root.crt")
    assert status == "2 200"
    assert body.strip() == opened.one.root("cat /etc/lockstep/authority.crt").strip()


def test_without_tls_nothing_of_the_gateway_is_reached(opened: Stack) -> None:
    there = address(opened.one)
    plain = opened.two.run(f"curl -s --max-time 10 http://{there}:{PORT}/v1/models")
    assert "HTTPS server" in plain.out and "qwen" not in plain.out
    local = opened.one.root(f"ss -Hltn 'sport = :{LOCAL}'").split()[3::5]
    # Peers come by the address of the link, which is the lab's only one; they need their key.
    assert sorted(local) == sorted([f"127.0.0.1:{LOCAL}", f"{there}:{LOCAL}"])
    said = opened.two.root(f"curl -s -H @{HEADER} http://{there}:{LOCAL}/v1/models")
    assert json.loads(said)["error"]["code"] == 401
    assert opened.one.run("curl -s --max-time 5 http://127.0.0.1:80/").code == 7
    assert opened.one.show("caddy.service", "LoadState") == "masked"


def test_the_hosts_have_one_authority_and_one_key(opened: Stack) -> None:
    for files in (f"{SECRETS}/authority-*", f"{SECRETS}/gateway-peers.key"):
        one, two = (host.root(f"cat {files} | sha256sum") for host in opened.hosts)
        assert one == two
        assert opened.one.root(f"stat -c '%a %U' {files}").split() == ["600", "root"]


def test_a_stream_of_the_other_host_s_model_comes_whole(opened: Stack) -> None:
    """From spark2 by TLS to spark1, whose gateway asks spark2's, where Qwen is hot."""
    document = {**CHAT, "stream": True, "max_tokens": 20}
    status, body = asked(opened, "/v1/chat/completions", "-N", f"-H @{HEADER}", sent(document))
    assert status == "2 200"
    events = [line for line in body.splitlines() if line.startswith("data: ")]
    assert len(events) > 5 and events[-1] == "data: [DONE]"


def test_a_twin_that_is_cut_off_breaks_its_stream_and_is_then_refused(opened: Stack) -> None:
    url = f"http://127.0.0.1:{LOCAL}/v1/chat/completions"
    opened.one.root("rm -f /tmp/stream /tmp/ended")
    ask = f"curl -sNo /tmp/stream {sent(ENDLESS)} {url}; echo $? > /tmp/ended"
    opened.one.root(f"systemd-run --quiet --collect sh -c {shlex.quote(ask)}")
    try:
        until(lambda: opened.one.look("grep -q data: /tmp/stream").code == 0, "the stream runs")
        opened.lab("cut", opened.two.name)
        until(lambda: opened.one.look("test -s /tmp/ended").code == 0, "the stream has ended")
        # curl's word for an answer that has no end.
        assert opened.one.root("cat /tmp/ended").strip() == "18"
        assert "[DONE]" not in opened.one.root("cat /tmp/stream")
        said = opened.one.root(f"curl -s --max-time 30 {sent(CHAT)} {url}")
        assert "qwen is cold" in json.loads(said)["error"]["message"]
        models = opened.one.get(f"http://127.0.0.1:{LOCAL}/v1/models")["data"]
        twins = next(each["lockstep"]["twins"] for each in models if each["id"] == "qwen")
        assert twins == [{"host": "spark2", "state": "silent", "hot": False}]
    finally:
        opened.lab("mend", opened.two.name)
    url = f"http://127.0.0.1:{LOCAL}/v1/models"

    def back() -> bool:
        models = opened.one.get(url)["data"]
        return any(twin["hot"] for each in models for twin in each["lockstep"].get("twins", ()))

    until(back, "spark2 answers again")
