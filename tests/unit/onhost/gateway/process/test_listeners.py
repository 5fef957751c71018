"""The gateway on the wire: who may ask at which listener."""

import json

import pytest
from gateway_process import BOUNDED, CHAT, KEYS, OK, OPERATE, TWO, USE, ask, error, running, send
from lab_servers import free_port

from lockstep.onhost.gateway.app import MODEL_PATHS
from lockstep.onhost.gateway.configuration import ListenAddress

pytestmark = pytest.mark.slow
PAGE = "https://chat.example"
SETTINGS = {**BOUNDED, "origins": (PAGE,)}


def test_without_a_key_this_host_alone_may_ask(spark):
    for listener in ("open", "tls"):
        for path in ("/v1/models", "/metrics", "/status", "/nope"):
            answer, body = ask(spark, "GET", path, listener=listener)
            assert (answer.status, answer.getheader("www-authenticate")) == (401, "Bearer")
            assert "a key is needed" in error(body)["message"]
        for path in MODEL_PATHS:
            assert ask(spark, "POST", path, {"model": "qwen"}, listener=listener)[0].status == 401
        assert ask(spark, "POST", "/switch", {"model": "qwen"}, listener=listener)[0].status == 401
        assert ask(spark, "GET", "/health", listener=listener)[1] == b'{"status": "ok"}'
        for headers in (USE, OPERATE):
            answer, _ = ask(spark, "GET", "/v1/models", headers=headers, listener=listener)
            assert answer.status == 200
    spark.nobody_asked()


def test_no_engine_sees_a_key(spark):
    for headers in (USE, OPERATE, {"x-lockstep-person": "boss"}):
        request = send(spark, b'{"model":"qwen"}', headers=headers)[2]
        names = {name.lower() for name, _ in request.headers}
        assert names == {"host", "accept-encoding", "content-length"}


def test_a_body_without_a_key_is_neither_waited_for_nor_passed_on(spark):
    with spark.raw("open") as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")
    # Who sends a large one reads why it is refused.
    assert ask(spark, "POST", CHAT, b"x" * 900_000, listener="open")[0].status == 401
    spark.nobody_asked()


def test_an_open_port_of_a_model_asks_for_the_hosts_key_and_keeps_it(tmp_path):
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "api-key").write_text("sk-of-the-host\n")
    listener = ListenAddress("model", "0.0.0.0", free_port(), ("mistral", "safe"))
    with running(tmp_path, {"CREDENTIALS_DIRECTORY": str(folder)}, listeners=(listener,)) as spark:
        spark.heat("mistral")
        for header in ({"Authorization": "Bearer sk-of-the-host"}, {"x-api-key": KEYS["use"]}):
            talk = {"messages": TWO}
            client, wire, request = send(
                spark, talk, headers=header, to="mistral", listener="model"
            )
            assert json.loads(request.body) == {"messages": [{"role": "user", "content": "a\n\nb"}]}
            assert not request.get("authorization") and not request.get("x-api-key")
            wire.send(OK)
            assert client.getresponse().read() == b"ok"
        answer, body = ask(spark, "POST", CHAT, {"messages": TWO}, listener="model")
        assert answer.status == 401 and "a key is needed" in error(body)["message"]
        spark.nobody_asked("mistral")
        assert "sk-of" not in spark.stop()


def test_only_an_operator_may_switch(spark):
    answer, body = ask(spark, "POST", "/switch", {"model": "mistral"})
    assert answer.status == 403 and "local may use models, not switch" in error(body)["message"]
    assert ask(spark, "POST", "/switch", {"model": "mistral"}, USE)[0].status == 403
    assert ask(spark, "POST", "/switch", {"model": "safely"}, OPERATE)[0].status == 404
    assert ask(spark, "POST", "/switch", {"model": "qwen", "more": 1}, OPERATE)[0].status == 400
    answer, body = ask(spark, "POST", "/switch", {"model": "mistral"}, OPERATE)
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    # Nobody listens at the socket of this machine.
    assert json.loads(body.removeprefix(b"data: "))["code"] == 1
    # Who leaves in the middle of it is no fault of the gateway, whose output is read at its end.
    with spark.raw() as client:
        client.sendall(b"POST /switch HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    assert ask(spark, "GET", "/v1/models")[0].status == 200


def test_nothing_that_is_said_or_counted_holds_a_key(spark):
    """The gateway's output is read at its end."""
    for headers in (USE, OPERATE, {"x-api-key": f"{KEYS['use']}x"}):
        ask(spark, "GET", "/v1/models", headers=headers)
    metrics = ask(spark, "GET", "/metrics")[1].decode()
    assert not any(key in metrics for key in KEYS.values())


def test_pages_of_listed_origins_may_ask_with_a_key_and_others_read_nothing(spark):
    """A browser shows an answer to a page whose origin the answer names."""
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-stainless",
    }
    answer, _ = ask(spark, "OPTIONS", CHAT, headers={"Origin": PAGE, **asks})
    own_headers = {name: text for name, text in answer.getheaders() if "-allow-" in name}
    assert own_headers == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "x-stainless",
    }
    assert (answer.status, answer.getheader("vary")) == (204, "Origin")
    for origin in ("https://chat.example.evil", "null"):
        answer, _ = ask(spark, "OPTIONS", CHAT, headers={"Origin": origin, **asks})
        assert (answer.status, answer.getheader("access-control-allow-origin")) == (403, None)
    assert ask(spark, "GET", "/v1/models", headers={"Origin": PAGE})[0].status == 403
    # What an engine says of origins is not passed on.
    own = b"Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n"
    for origin, allowed_origin in ((PAGE, PAGE), ("https://other.example", None)):
        client, wire, _ = send(spark, {"model": "qwen"}, headers={**USE, "Origin": origin})
        wire.send(OK.replace(b"Content-Length", own + b"Content-Length"))
        answer = client.getresponse()
        assert answer.getheader("access-control-allow-origin") == allowed_origin
        assert answer.getheader("access-control-allow-credentials") is None
