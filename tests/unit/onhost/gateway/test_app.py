"""The gateway's own paths on the wire: which model answers, who may ask, and what is refused."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_process import KEYS, Limits, Spark, running, write_keys
from lab_servers import free_port, until

from lockstep.onhost.gateway.app import MODEL_PATHS
from lockstep.onhost.gateway.configuration import Door
from lockstep.onhost.gateway.server import LONGEST_HEAD

CHAT = "/v1/chat/completions"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TWO = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
USE = {"Authorization": f"Bearer {KEYS['use']}"}
OPERATE = {"x-api-key": KEYS["operate"]}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    limits = Limits(body_mib=1, streams=6, streams_per_key=2)
    with running(tmp_path_factory.mktemp("gateway"), limits=limits, keepalive_s=0.2) as found:
        yield found


def ask(
    spark: Spark,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    door: str = "local",
) -> tuple[http.client.HTTPResponse, bytes]:
    """One request that the gateway answers itself."""
    client = spark.client(door)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with closing(client):
        client.request(method, path, data, headers or {})
        answer = client.getresponse()
        return answer, answer.read()


def error(answer: bytes) -> dict[str, Any]:
    found = json.loads(answer)["error"]
    assert isinstance(found, dict)
    return found


def hot(spark: Spark, name: str | None) -> None:
    """Let a target be hot, and wait until the gateway knows."""
    spark.heat(name)

    def known() -> bool:
        data = json.loads(ask(spark, "GET", "/v1/models")[1])["data"]
        return [model["id"] for model in data if model["lockstep"]["hot"]][:1] == [name]

    until(known, f"{name} is known to be hot")


# Which model


def test_the_list_has_every_target_and_alias_and_what_is_hot(spark: Spark) -> None:
    _, body = ask(spark, "GET", "/v1/models")
    found = {model["id"]: model for model in json.loads(body)["data"]}
    assert list(found) == ["qwen", "coder", "mistral", "vectors", "auto"]
    assert all(m["object"] == "model" and m["owned_by"] == "lockstep" for m in found.values())
    assert found["coder"]["lockstep"] == {
        "state": "hot",
        "hot": True,
        "kind": "chat",
        "context": 32768,
        "alias_of": "qwen",
        "host": "spark1",
    }
    assert found["coder"]["max_model_len"] == 32768
    assert found["mistral"]["lockstep"]["state"] == "cold"
    assert found["vectors"]["lockstep"]["kind"] == "embedding"
    assert found["auto"]["lockstep"]["alias_of"] == "qwen"
    assert json.loads(ask(spark, "GET", "/v1/models/coder")[1]) == found["coder"]
    answer, body = ask(spark, "GET", "/v1/models/nobody/x")
    assert (
        answer.status == 404 and "no model 'nobody/x' here; models: qwen" in error(body)["message"]
    )


@pytest.mark.parametrize("path", MODEL_PATHS)
@pytest.mark.parametrize("name", ["qwen", "coder", "Qwen/Q", "auto"])
def test_every_name_leads_to_the_engine_which_reads_its_own(
    spark: Spark, name: str, path: str
) -> None:
    client = spark.client()
    body = b' { "x" : 1.50, "model":%s , "messages": [{"role":"user","content":"\\u00e9"}] } '
    client.request("POST", f"{path}?a=%41", body % json.dumps(name).encode())
    wire = spark.accept()
    asked = wire.asked()
    assert asked.line == f"POST {path}?a=%41 HTTP/1.1"
    assert asked.body == body % b'"Qwen/Q"'
    wire.send(OK)
    assert client.getresponse().read() == b"ok"


def test_the_last_model_of_several_counts_as_for_the_engine(spark: Spark) -> None:
    client = spark.client()
    client.request("POST", CHAT, b'{"model":"mistral","model":"coder"}')
    assert json.loads(spark.accept().asked().body)["model"] == "Qwen/Q"


def test_roles_are_merged_where_the_recipe_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        spark.heat("mistral")
        client = spark.client()
        body = json.dumps({"model": "mistral", "messages": TWO, "n": 1}).encode()
        client.request("POST", CHAT, body)
        merged = (
            b'{"model": "mistralai/M", "messages": [{"role":"user","content":"a\\n\\nb"}], "n": 1}'
        )
        assert spark.accept("mistral").asked().body == merged
    with running(tmp_path / "other") as spark:
        client = spark.client()
        client.request("POST", CHAT, json.dumps({"model": "qwen", "messages": TWO}))
        assert json.loads(spark.accept().asked().body)["messages"] == TWO


def test_a_fallback_answers_for_its_target_and_not_the_other_way_round(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        hot_fallback(spark)
        client = spark.client()
        client.request("POST", CHAT, json.dumps({"model": "mistral", "messages": []}))
        spark.accept("safe").asked()
    with running(tmp_path / "other") as spark:
        spark.heat("mistral")
        answer, body = ask(spark, "POST", CHAT, {"model": "safe"})
        assert answer.status == 503 and "mistral is hot" in error(body)["message"]


def hot_fallback(spark: Spark) -> None:
    spark.heat("safe")
    found = json.loads(ask(spark, "GET", "/v1/models/mistral")[1])["lockstep"]
    assert (found["state"], found["alias_of"]) == ("hot", None)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (CHAT, ("api_error", 503)),
        ("/v1/messages", None),
        ("/v1/responses", ("api_error", 503)),
    ],
)
def test_what_is_cold_is_refused_with_who_may_switch(
    spark: Spark, path: str, shape: tuple[str, int] | None
) -> None:
    answer, body = ask(spark, "POST", path, {"model": "mistral", "messages": []})
    assert answer.status == 503 and int(answer.getheader("retry-after") or 0) > 0
    found = error(body)
    said = found.pop("message")
    assert "qwen is hot" in said and "role operate" in said and "switch.sh mistral" in said
    if shape:
        assert found == {"type": shape[0], "param": None, "code": shape[1]}
    else:
        assert (json.loads(body)["type"], found) == ("error", {"type": "api_error"})
    spark.nobody_asked("mistral")


def test_a_unit_that_systemd_called_hot_but_whose_processes_are_gone_is_not_asked(
    tmp_path: Path,
) -> None:
    """Another engine may have its port by now."""
    with running(tmp_path) as spark:
        hot(spark, "qwen")
        events = spark.paths.groups_of_units / "qwen.service/cgroup.events"
        events.write_text("populated 0\nfrozen 0\n")
        answer, _ = ask(spark, "POST", CHAT, {"model": "qwen"})
        assert answer.status == 503
        spark.nobody_asked()


def test_auto_while_nothing_is_hot(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        spark.heat(None)
        answer, body = ask(spark, "POST", CHAT, {"model": "auto"})
        assert answer.status == 503 and "no model is hot on spark1" in error(body)["message"]
        ids = [model["id"] for model in json.loads(ask(spark, "GET", "/v1/models")[1])["data"]]
        assert "auto" not in ids


# What is read


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "no JSON object"),
        (b"[]", 400, "no JSON object"),
        (b'{"model":"qwen"', 400, "no JSON object"),
        (b'{"model":"qwen"} x', 400, "no JSON object"),
        (b'{"model":"\xff"}', 400, "no JSON object"),
        (b'{"a":' + b"[" * 100_000, 400, "no JSON object"),
        (b'{"a":' + b"9" * 5000 + b"}", 400, "no JSON object"),
        (b"{}", 400, "model: Field required"),
        (b'{"model":null}', 400, "model:"),
        (b'{"model":7}', 400, "model:"),
        (b'{"model":""}', 400, "model:"),
        (b'{"model":"' + b"x" * 300 + b'"}', 400, "model:"),
        (b'{"model":"nobody"}', 404, "no model 'nobody' here; models: qwen, coder, mistral"),
        (b'{"model":"qwen","n":"many"}', 400, "n:"),
        (b'{"model":"qwen","x":"' + b"x" * 2**20 + b'"}', 413, "larger than 1 MiB"),
    ],
)
def test_what_cannot_be_read_is_refused(spark: Spark, body: bytes, status: int, said: str) -> None:
    answer, found = ask(spark, "POST", CHAT, body)
    assert answer.status == status and said in error(found)["message"]
    spark.nobody_asked()


@pytest.mark.parametrize(
    "asked",
    [
        {"top_logprobs": 21},
        {"top_logprobs": 10**6},
        {"top_logprobs": "1000000"},
        {"logprobs": 21},
        {"prompt_logprobs": -1},
        {"n": 129},
        {"n": 0},
        {"best_of": 5_000_000},
        {"stop_token_ids": [9_999_999]},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [151645], "min_tokens": 1},
        {"stop_token_ids": [151645], "min_new_tokens": 5},
        {"allowed_token_ids": [2**19]},
        {"logit_bias": {"9999999": 5}},
        {"prompt": [1, 2**31]},
        {"input": [[1, 2], [-5]]},
        {"tokens": [2**19]},
        {"kv_transfer_params": {"tp_size": 10**9}},
    ],
)
def test_what_is_known_to_end_an_engine_is_refused(spark: Spark, asked: dict[str, Any]) -> None:
    answer, body = ask(spark, "POST", CHAT, {"model": "qwen", **asked})
    assert answer.status == 400 and next(iter(asked)) in error(body)["message"]
    # The last of several values counts, here as in the engine.
    key, value = next(iter(asked.items()))
    twice = f'{{"model":"qwen","{key}":null,"{key}":{json.dumps(value)}'.encode()
    if len(asked) == 1:
        assert ask(spark, "POST", CHAT, twice + b"}")[0].status == 400
    spark.nobody_asked()


def test_it_is_refused_at_a_targets_own_port_too(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        spark.heat("mistral")
        answer, _ = ask(spark, "POST", "/v1/completions", {"n": 5_000_000}, door="target")
        assert answer.status == 400
        spark.nobody_asked("mistral")


def test_usual_values_pass(spark: Spark) -> None:
    usual = {
        **{"n": 2, "top_logprobs": 20, "logprobs": True, "stop_token_ids": [151645]},
        **{"min_tokens": 0, "logit_bias": {"5": -100}, "best_of": None, "stream": None},
    }
    client = spark.client()
    client.request("POST", CHAT, json.dumps({"model": "qwen", **usual}))
    assert json.loads(spark.accept().asked().body) == {"model": "Qwen/Q", **usual}


def test_a_compressed_body_is_refused(spark: Spark) -> None:
    answer, _ = ask(spark, "POST", CHAT, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert answer.status == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/invocations", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1/../pause", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_other_paths_are_closed(spark: Spark, method: str, path: str, status: int) -> None:
    answer, body = ask(spark, method, path)
    assert answer.status == status and error(body)["code"] == status
    spark.nobody_asked()


def test_a_path_goes_to_the_engine_as_it_is_documented(spark: Spark) -> None:
    client = spark.client()
    client.request("POST", "/v1/chat%2Fcompletions", b'{"model":"qwen"}')
    assert spark.accept().asked().line == f"POST {CHAT} HTTP/1.1"


def test_a_head_that_is_too_long_is_a_431(spark: Spark) -> None:
    for sent in (
        b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"x" * LONGEST_HEAD),
        b"GET / HTTP/1.1\r\nx: %s" % (b"x" * (LONGEST_HEAD + 70_000)),
    ):
        with spark.raw() as client:
            client.sendall(sent)
            assert client.recv(65536).startswith(b"HTTP/1.1 431 ")


# Who may ask


def test_without_a_key_this_host_alone_may_ask(spark: Spark) -> None:
    for door in ("open", "tls"):
        for path in ("/v1/models", "/metrics", "/status", "/nope"):
            answer, body = ask(spark, "GET", path, door=door)
            assert (answer.status, answer.getheader("www-authenticate")) == (401, "Bearer")
            assert "a key is needed" in error(body)["message"]
        for path in MODEL_PATHS:
            assert ask(spark, "POST", path, {"model": "qwen"}, door=door)[0].status == 401
        assert ask(spark, "POST", "/switch", {"target": "qwen"}, door=door)[0].status == 401
        assert ask(spark, "GET", "/health", door=door)[1] == b'{"status": "ok"}'
        for headers in (USE, OPERATE):
            assert ask(spark, "GET", "/v1/models", headers=headers, door=door)[0].status == 200
    spark.nobody_asked()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:9999"}, 200),
        ({"Host": "SPARK1.local."}, 200),
        ({"Host": "[::1]:8090"}, 200),
        ({"Host": "127.0.0.1:8090", "Origin": "http://127.0.0.1:8090"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "127.0.0.1.rebound.example:8090"}, 403),
        ({"Host": "localhost@rebound.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "127.0.0.1:8090", "Origin": "https://rebound.example"}, 403),
        ({"Host": "127.0.0.1:8090", "Origin": "null"}, 403),
        ({"Host": "127.0.0.1:8090", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "127.0.0.1:8090", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"X-Forwarded-For": "10.0.0.1"}, 401),
        ({"Forwarded": "for=10.0.0.1"}, 401),
        ({"X-Forwarded-For": "10.0.0.1", **USE}, 200),
        ({"Host": "proxied.example", **USE}, 200),
        ({"Authorization": "Bearer lk-unknown"}, 401),
        ({"x-api-key": "lk-unknown"}, 401),
        ({"x-lockstep-peer": "k", "x-lockstep-person": "x", "x-lockstep-role": "operate"}, 200),
    ],
)
def test_the_local_door(spark: Spark, headers: dict[str, str], status: int) -> None:
    assert ask(spark, "GET", "/v1/models", headers=headers)[0].status == status


def test_a_web_page_cannot_make_a_browser_of_this_host_ask(spark: Spark) -> None:
    headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    answer, _ = ask(spark, "POST", CHAT, {"model": "qwen"}, headers)
    assert answer.status == 403
    spark.nobody_asked()


def test_the_local_door_may_ask_for_keys(tmp_path: Path) -> None:
    with running(tmp_path, local_keys=True) as spark:
        assert ask(spark, "GET", "/v1/models")[0].status == 401
        assert ask(spark, "GET", "/v1/models", headers=USE)[0].status == 200


def test_no_engine_sees_a_key(spark: Spark) -> None:
    for headers in (USE, OPERATE, {"x-lockstep-peer": "secret"}):
        client = spark.client()
        client.request("POST", CHAT, b'{"model":"qwen"}', headers)
        names = {name.lower() for name, _ in spark.accept().asked().headers}
        assert names == {"host", "accept-encoding", "content-length"}


def test_a_body_without_a_key_is_neither_waited_for_nor_passed_on(spark: Spark) -> None:
    with spark.raw("open") as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")
    spark.nobody_asked()


def test_who_sends_a_large_body_without_a_key_reads_why_it_is_refused(spark: Spark) -> None:
    answer, _ = ask(spark, "POST", CHAT, b"x" * 900_000, door="open")
    assert answer.status == 401


def test_an_open_port_of_a_target_asks_for_the_hosts_key_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "api-key").write_text("sk-of-the-host\n")
    door = Door("target", "0.0.0.0", free_port(), ("mistral", "safe"))
    with running(tmp_path, {"CREDENTIALS_DIRECTORY": str(folder)}, doors=(door,)) as spark:
        spark.heat("mistral")
        for header in ({"Authorization": "Bearer sk-of-the-host"}, {"x-api-key": KEYS["use"]}):
            client = spark.client("target")
            client.request("POST", CHAT, json.dumps({"messages": TWO}), header)
            wire = spark.accept("mistral")
            asked = wire.asked()
            assert json.loads(asked.body) == {"messages": [{"role": "user", "content": "a\n\nb"}]}
            assert not asked.get("authorization") and not asked.get("x-api-key")
            wire.send(OK)
            assert client.getresponse().read() == b"ok"
        answer, body = ask(spark, "POST", CHAT, {"messages": TWO}, door="target")
        assert answer.status == 401 and "a key is needed" in error(body)["message"]
        spark.nobody_asked("mistral")
        assert spark.process
        command = Path(f"/proc/{spark.process.pid}/cmdline").read_bytes()
        assert b"sk-of" not in command and "sk-of" not in spark.stop()


def test_a_revoked_key_is_refused_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        assert ask(spark, "GET", "/v1/models", headers=USE, door="open")[0].status == 200
        write_keys(spark.paths, ("operate",))
        assert ask(spark, "GET", "/v1/models", headers=USE, door="open")[0].status == 401


def test_only_an_operator_may_switch(spark: Spark) -> None:
    answer, body = ask(spark, "POST", "/switch", {"target": "mistral"})
    assert answer.status == 403 and "local may use models, not switch" in error(body)["message"]
    assert ask(spark, "POST", "/switch", {"target": "mistral"}, USE)[0].status == 403
    assert ask(spark, "POST", "/switch", {"target": "safely"}, OPERATE)[0].status == 404
    assert ask(spark, "POST", "/switch", {"target": "qwen", "more": 1}, OPERATE)[0].status == 400
    answer, body = ask(spark, "POST", "/switch", {"target": "mistral"}, OPERATE)
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    # Nobody listens at the socket of this machine.
    assert json.loads(body.removeprefix(b"data: "))["code"] == 1


def test_nothing_that_is_said_holds_a_key(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        spark.engines["qwen"].close()
        for headers in (USE, OPERATE, {"Authorization": "Bearer lk-unknown-0123456789"}):
            ask(spark, "POST", CHAT, {"model": "qwen"}, headers)
        _, counted = ask(spark, "GET", "/metrics")
        said = spark.stop()
        for key in (*KEYS.values(), "lk-unknown"):
            assert key not in said and key.encode() not in counted


# Streams


def begin(spark: Spark, path: str = CHAT, headers: dict[str, str] | None = None, **more: object):
    client = spark.client()
    client.request(
        "POST", path, json.dumps({"model": "qwen", "stream": True, **more}), headers or {}
    )
    wire = spark.accept()
    wire.asked()
    return client, wire


def test_a_client_of_a_stream_is_kept_while_the_engine_thinks(spark: Spark) -> None:
    client, wire = begin(spark)
    answer = client.getresponse()
    assert (answer.status, answer.getheader("content-type")) == (
        200,
        "text/event-stream; charset=utf-8",
    )
    assert answer.readline() + answer.readline() == b": waiting\n\n"
    wire.send(STREAM)
    assert answer.readline() + answer.readline() == b": waiting\n\n"
    wire.send(chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + b"0\r\n\r\n")
    rest = answer.read()
    assert rest.replace(b": waiting\n\n", b"") == b"data: 1\n\ndata: 2\n\n"
    assert rest.endswith(b"data: 1\n\ndata: 2\n\n")
    client.close()


def test_no_comment_comes_into_a_stream_that_has_begun(spark: Spark) -> None:
    client, wire = begin(spark)
    wire.send(STREAM + chunk(b"data: 1\n"))
    answer = client.getresponse()
    while (line := answer.readline()) in (b": waiting\n", b"\n"):
        pass
    assert line == b"data: 1\n"
    # Three times as long as between two comments.
    wire.socket.settimeout(0.6)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    wire.send(chunk(b"\n") + b"0\r\n\r\n")
    assert answer.read() == b"\n"
    client.close()


def test_what_is_no_stream_gets_no_comment(spark: Spark) -> None:
    client = spark.client()
    client.request("POST", CHAT, b'{"model":"qwen"}')
    wire = spark.accept()
    wire.asked()
    wire.socket.settimeout(0.6)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    wire.send(OK)
    assert client.getresponse().read() == b"ok"


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        (CHAT, [b"data: "]),
        ("/v1/messages", [b"event: error", b"data: "]),
        ("/v1/responses", [b"event: error", b"data: "]),
    ],
)
def test_an_error_after_the_first_comment_is_an_event(
    spark: Spark, path: str, lines: list[bytes]
) -> None:
    client, wire = begin(spark, path)
    answer = client.getresponse()
    body = b'{"error": {"message": "too long a prompt"}}'
    wire.send(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    event = answer.read().rpartition(b": waiting\n\n")[2].rstrip(b"\n").split(b"\n")
    assert [line.partition(b"{")[0] for line in event] == lines
    found = json.loads(event[-1].removeprefix(b"data: "))
    assert found["error"]["message"] == "too long a prompt"
    if path != CHAT:
        assert found["type"] == "error"
    client.close()


def test_an_engine_that_ends_before_its_stream_began_is_an_event(spark: Spark) -> None:
    client, wire = begin(spark)
    answer = client.getresponse()
    wire.socket.close()
    assert b"gave no answer" in answer.read()
    client.close()


def test_who_hangs_up_while_comments_come_ends_the_work(spark: Spark) -> None:
    client, wire = begin(spark)
    answer = client.getresponse()
    answer.readline()
    answer.close()
    client.close()
    assert wire.closed()


def test_a_compressed_answer_is_not_asked_for_in_a_stream(spark: Spark) -> None:
    client = spark.client()
    body = b'{"model":"qwen","stream":true}'
    client.request("POST", CHAT, body, {"Accept-Encoding": "gzip"})
    assert spark.accept().asked().get("accept-encoding") == []
    client = spark.client()
    client.request("POST", CHAT, b'{"model":"qwen"}', {"Accept-Encoding": "gzip"})
    assert spark.accept().asked().get("accept-encoding") == ["gzip"]


# Bounds and counts


def test_the_bound_of_a_key_and_of_all(spark: Spark) -> None:
    clients = [begin(spark, headers=USE) for _ in range(2)]
    answer, body = ask(spark, "POST", CHAT, {"model": "qwen"}, USE)
    assert answer.status == 429 and answer.getheader("retry-after")
    assert "2 requests of anna are under way" in error(body)["message"]
    clients += [begin(spark) for _ in range(4)]
    answer, body = ask(spark, "POST", CHAT, {"model": "qwen"}, OPERATE)
    assert answer.status == 429 and "6 requests are under way" in error(body)["message"]
    for client, _ in clients:
        client.close()
    for _, wire in clients:
        assert wire.closed()

    def free() -> bool:
        client = spark.client()
        client.request("POST", CHAT, b'{"model":"nobody"}', USE)
        return client.getresponse().status == 404

    until(free, "places are given back")


def samples(spark: Spark) -> dict[str, float]:
    lines = ask(spark, "GET", "/metrics")[1].decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if line.startswith("lockstep_gateway")]
    return {name: float(value) for name, _, value in pairs}


def test_requests_refusals_and_tokens_are_counted_per_key(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        usage = b'"usage":{"prompt_tokens":7,"completion_tokens":40,"total_tokens":47}'
        client = spark.client()
        client.request("POST", CHAT, b'{"model":"qwen"}', USE)
        wire = spark.accept()
        wire.asked()
        whole = b'{"choices":[%s],%s}' % (b"1," * 5000 + b"1", usage)
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(whole), whole))
        client.getresponse().read()
        client, wire = begin(spark, headers=USE)
        events = chunk(b"data: {}\n\n" * 900) + chunk(b"data: {%s}\n\ndata: [DONE]\n\n" % usage)
        wire.send(STREAM + events + b"0\r\n\r\n")
        client.getresponse().read()
        ask(spark, "POST", CHAT, {"model": "qwen", "n": 500}, USE)
        ask(spark, "GET", "/v1/models", door="open")
        found = samples(spark)
        anna = 'person="anna"'
        assert found[f'lockstep_gateway_requests_total{{model="qwen",{anna}}}'] == 2
        assert found[f'lockstep_gateway_tokens_total{{kind="prompt",model="qwen",{anna}}}'] == 14
        completion = f'lockstep_gateway_tokens_total{{kind="completion",model="qwen",{anna}}}'
        assert found[completion] == 80
        assert found[f'lockstep_gateway_refusals_total{{{anna},reason="engine"}}'] == 1
        assert found['lockstep_gateway_refusals_total{person="-",reason="key"}'] == 1
        assert found['lockstep_gateway_first_byte_seconds_count{model="qwen"}'] == 2
        assert found['lockstep_gateway_running{model="qwen"}'] == 0
        spark.stop()
        kept = json.loads((spark.paths.root / "usage.json").read_text())["anna"]
        assert (kept["requests"], kept["prompt_tokens"], kept["refused"]) == (2, 14, 1)


# Doors


def test_one_socket_at_all_addresses_is_several_doors(tmp_path: Path) -> None:
    with running(tmp_path) as spark:
        doors = spark.gateway.doors
    wide = replace(doors[1], address="0.0.0.0", port=doors[0].port)
    with running(tmp_path / "wide", doors=(doors[0], wide)) as spark:
        assert ask(spark, "GET", "/v1/models")[0].status == 200
        client = http.client.HTTPConnection("127.0.0.2", doors[0].port, timeout=20)
        client.request("GET", "/v1/models")
        assert client.getresponse().status == 401


def test_no_traceback_was_said(spark: Spark) -> None:
    """The last test of this module: of all that was asked before."""
    assert "Traceback" not in spark.stop()
