"""The gateway by TLS from another machine, and two gateways that answer for each other."""

import json
import shlex

import pytest
from stack import Stack, until

from lockstep.onhost.gateway import keys

PORT, LOCAL = 8443, 8090
UNIT = "lockstep-tls.service"
#: On spark2, for curl: no command line holds the key.
HEADER = "/run/gateway-key-header"
SECRETS = "/etc/lockstep/secrets"
KEYS = "python3 /usr/local/lib/lockstep gateway-keys"
ANNOUNCED = "No host had an authority of certificates, so a new one was made."
CHAT = {"model": "qwen", "messages": [{"role": "user", "content": "x"}]}
#: Goes on until it is cut, however long that takes.
ENDLESS = {**CHAT, "stream": True, "ignore_eos": True, "max_tokens": 20_000}


@pytest.fixture(scope="module")
def tls_stack(stack, first):
    """Both hosts with TLS and as each other's peers, and Qwen hot on spark2."""
    gateway = {"bind": "0.0.0.0", "tls": "own", "peers": ("spark1", "spark2")}
    inventory = stack.inventory("tls", gateway=gateway, **stack.fabric_addresses())
    result = stack.good_deploy("-y", inventory=inventory)
    assert "Keys | Make keys for several hosts once" in result.changed_operations
    assert ANNOUNCED in " ".join(result.output.split())
    answer = stack.two.switch("qwen")
    assert answer.code == 0, answer.text
    give_key(stack)
    yield stack
    stack.two.root(f"rm -f {HEADER}")
    stack.two.switch("none")
    stack.good_deploy()
    for host in stack.hosts:
        paths = "/etc/lockstep/Caddyfile /etc/lockstep/authority.crt"
        paths += f" {SECRETS}/authority-* {SECRETS}/peer-*"
        assert host.root(f"ls {paths} 2>/dev/null || true") == "", "what only TLS and peers need"
        assert host.show(UNIT, "LoadState") == "not-found"


def give_key(stack: Stack) -> None:
    """Make a key for Tessa on spark1, and let spark2 send it."""
    key = keys.new_key()
    entry = keys.Entry("tessa", keys.format_utc(keys.utc_now()), keys.key_digest(key.encode()))
    document = json.dumps(keys.entries_document([entry]))
    stack.spark1.root(f"echo '{document}' | {KEYS} take")
    stack.two.root(f"umask 077; echo 'Authorization: Bearer {key}' > {HEADER}")


def https_answer(stack: Stack, path: str, *options: str) -> tuple[str, str]:
    """The HTTPS answer that spark2, a stranger to spark1, gets: version with status, and body."""
    words = "curl -sS -w '\\n%{http_version} %{http_code}' --max-time 60 --http2"
    words += " --cacert /etc/lockstep/authority.crt "
    output = stack.two.root(
        f"{words} {' '.join(options)} https://{stack.spark1.address}:{PORT}{path}"
    )
    body, _, status = output.rpartition("\n")
    return status, body


def json_options(document: object) -> str:
    return f"-H 'Content-Type: application/json' -d '{json.dumps(document)}'"


def test_a_stranger_with_a_key_is_answered_by_http_2_and_others_are_not(tls_stack):
    status, body = https_answer(tls_stack, "/v1/models", f"-H @{HEADER}")
    assert status == "2 200"
    assert {"qwen", "mistral"} <= {model["id"] for model in json.loads(body)["data"]}
    for header in ("X-None: 1", "Authorization: Bearer lk-guessed"):
        assert https_answer(tls_stack, "/v1/models", f"-H '{header}'")[0] == "2 401"
    # What clients install before they have anything.
    status, body = https_answer(tls_stack, "/root.crt")
    assert status == "2 200"
    assert body.strip() == tls_stack.spark1.root("cat /etc/lockstep/authority.crt").strip()


def test_without_tls_nothing_of_the_gateway_is_reached(tls_stack):
    host_address = tls_stack.spark1.address
    local = tls_stack.spark1.root(f"ss -Hltn 'sport = :{LOCAL}'").split()[3::5]
    # Peers come by the address of the link, which is the lab's only one, each with a certificate.
    assert sorted(local) == sorted([f"127.0.0.1:{LOCAL}", f"{host_address}:{LOCAL}"])
    for url in (f"http://{host_address}:{LOCAL}", f"--insecure https://{host_address}:{LOCAL}"):
        answer = tls_stack.two.run(f"curl -s --max-time 10 -H @{HEADER} {url}/v1/models")
        assert answer.code != 0 and answer.out == ""
    assert tls_stack.spark1.run("curl -s --max-time 5 http://127.0.0.1:80/").code == 7
    assert tls_stack.spark1.show("caddy.service", "LoadState") == "masked"


def test_a_peer_that_is_cut_off_breaks_its_stream_and_is_then_refused(tls_stack):
    url = f"http://127.0.0.1:{LOCAL}/v1/chat/completions"
    tls_stack.spark1.root("rm -f /tmp/stream /tmp/ended")
    ask = f"curl -sNo /tmp/stream {json_options(ENDLESS)} {url}; echo $? > /tmp/ended"
    tls_stack.spark1.root(f"systemd-run --quiet --collect sh -c {shlex.quote(ask)}")
    try:
        until(
            lambda: tls_stack.spark1.look("grep -q data: /tmp/stream").code == 0, "the stream runs"
        )
        tls_stack.lab("cut", tls_stack.two.name)
        until(lambda: tls_stack.spark1.look("test -s /tmp/ended").code == 0, "the stream has ended")
        # curl's word for an answer that has no end.
        assert tls_stack.spark1.root("cat /tmp/ended").strip() == "18"
        assert "[DONE]" not in tls_stack.spark1.root("cat /tmp/stream")
        reply = tls_stack.spark1.root(f"curl -s --max-time 30 {json_options(CHAT)} {url}")
        assert "qwen is cold" in json.loads(reply)["error"]["message"]
        models = tls_stack.spark1.get(f"http://127.0.0.1:{LOCAL}/v1/models")["data"]
        peers = next(model["lockstep"]["peers"] for model in models if model["id"] == "qwen")
        assert peers == [{"host": "spark2", "state": "silent", "hot": False}]
    finally:
        tls_stack.lab("mend", tls_stack.two.name)

    def back() -> bool:
        models = tls_stack.spark1.get(f"http://127.0.0.1:{LOCAL}/v1/models")["data"]
        return any(peer["hot"] for model in models for peer in model["lockstep"].get("peers", ()))

    until(back, "spark2 answers again")
