"""The gateway on the wire: which model answers, what is read, refused and counted."""

import contextlib
import json

import gateway_process
import pytest
from gateway_process import CHAT, OK, OPERATE, STREAM, TWO, USE, Spark, ask, begin, error, hot, send
from lab_servers import until
from raw_engine import chunk, reply

from lockstep.onhost.gateway.app import MODEL_PATHS
from lockstep.onhost.gateway.server import LONGEST_HEAD
from lockstep.onhost.gateway.wire import json_value_replacement


@pytest.fixture
def spark(gateway: Spark) -> Spark:
    """The host of most tests here; qwen is hot, whatever a test before did."""
    hot(gateway, "qwen")
    return gateway


def test_the_list_has_every_model_and_alias_and_what_is_hot(spark):
    _, body = ask(spark, "GET", "/v1/models")
    for path in ("/models", "/v1/models/", "/v1/v1/models"):
        assert ask(spark, "GET", path)[1] == body
    models = {model["id"]: model for model in json.loads(body)["data"]}
    assert list(models) == ["qwen", "coder", "mistral", "vectors", "auto"]
    assert all(m["object"] == "model" and m["owned_by"] == "lockstep" for m in models.values())
    state = {"state": "hot", "hot": True, "kind": "chat", "context": 32768}
    assert models["coder"]["lockstep"] == {**state, "alias_of": "qwen", "host": "spark1"}
    assert models["coder"]["max_model_len"] == 32768
    assert models["mistral"]["lockstep"]["state"] == "cold"
    assert models["vectors"]["lockstep"]["kind"] == "embedding"
    assert models["auto"]["lockstep"]["alias_of"] == "qwen"
    assert json.loads(ask(spark, "GET", "/v1/models/coder")[1]) == models["coder"]
    entry = json.loads(ask(spark, "GET", "/v1/models/Qwen%2FQ")[1])
    assert entry == models["qwen"] | {"id": "Qwen/Q", "lockstep": models["coder"]["lockstep"]}
    answer, body = ask(spark, "GET", "/v1/models/nobody/x")
    assert answer.status == 404
    assert "no model 'nobody/x' here; models: qwen" in error(body)["message"]


@pytest.mark.parametrize(
    ("name", "path"),
    [("qwen", path) for path in MODEL_PATHS]
    + [(name, CHAT) for name in ("coder", "Qwen/Q", "auto", "hub/qwen")],
)
def test_every_path_and_name_leads_to_the_engine_which_reads_its_own(spark, name, path):
    body = b' { "x" : 1.50, "model":%s , "messages": [{"role":"user","content":"\\u00e9"}] } '
    client, wire, request = send(spark, body % json.dumps(name).encode(), f"{path}?a=%41")
    assert request.line == f"POST {path}?a=%41 HTTP/1.1"
    assert request.body == body % b'"Qwen/Q"'
    wire.send(OK)
    assert client.getresponse().read() == b"ok"


@pytest.mark.parametrize(
    "path",
    [f"{CHAT}/", "/v1//chat/completions//", "/chat/completions", "/v1/v1/chat%2Fcompletions"],
)
def test_what_engines_and_base_urls_make_of_a_path_is_understood(spark, path):
    body = b'{"model":"qwen", "n":"1", "logit_bias":[[5,-100]]}'
    request = send(spark, b"\xef\xbb\xbf" + body, path)[2]
    assert request.line == f"POST {CHAT} HTTP/1.1"
    assert request.body == body.replace(b"qwen", b"Qwen/Q")


def test_a_form_goes_to_the_model_that_it_names(spark):
    """Recognition of a form: wire/test_multipart_form.py."""
    head = {"content-type": "multipart/form-data; boundary=x"}
    body = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'
    request = send(spark, body % b"coder", "/v1/audio/transcriptions", head)[2]
    assert request.get("content-type") == [head["content-type"]]
    assert request.body == body % b"Qwen/Q"
    assert ask(spark, "POST", "/v1/audio/transcriptions", body % b"nobody", head)[0].status == 404


@pytest.mark.parametrize(
    ("answer", "is_unserved"),
    [
        (b'{"detail":"Not Found"}', True),
        (b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}', True),
        (b'{"error":{"message":"Response with id \'r\' not found.","code":404}}', False),
    ],
)
def test_what_the_hot_engine_does_not_serve_is_said(spark, answer, is_unserved):
    client, wire, _ = send(spark, b'{"model": "qwen", "input": "a"}', "/v1/audio/speech")
    wire.send(reply(answer, "404 Not Found"))
    response = client.getresponse()
    body = response.read()
    assert response.status == 404
    words = b"qwen, which is hot, does not serve /v1/audio/speech"
    assert words in body if is_unserved else body == answer


def test_shapes_are_evened_out_where_the_recipe_says_so(spark):
    assert json.loads(send(spark, {"model": "qwen", "messages": TWO})[2].body)["messages"] == TWO
    hot(spark, "mistral")
    client, wire, request = send(spark, {"model": "mistral", "messages": TWO}, to="mistral")
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "a\n\nb"}]
    wire.send(OK)
    assert client.getresponse().getheader("x-lockstep-evened") == "same_role"
    metrics = ask(spark, "GET", "/metrics")[1]
    assert b'lockstep_gateway_evened_total{model="mistral",shape="same_role"} 1' in metrics


# What Java's HttpClient sends first over plain HTTP.
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAAAAI\r\nupgrade: h2c\r\n"


@pytest.mark.parametrize("piece", [1, 150, 10_000])
def test_an_offer_of_another_protocol_is_ignored(spark, piece):
    head = f"POST {CHAT}?a HTTP/1.1\r\nhost: localhost\r\n".encode()
    body = b'{"model": "qwen", "messages": []}'
    chunks = chunk(body[:9]) + chunk(body[9:]) + chunk(b"")
    whole = b"content-length: %d\r\n\r\n%b" % (len(body), body)
    # The next one in line offers it again, and a last one does not.
    payload = head + UPGRADE + b"transfer-encoding: chunked\r\n\r\n" + chunks
    payload += head + UPGRADE + whole + head + b"connection: close\r\n" + whole
    with spark.raw() as client:
        for at in range(0, len(payload), piece):
            client.sendall(payload[at : at + piece])
        for _ in range(3):
            wire = spark.accept()
            engine_request = wire.next_request()
            assert engine_request.line == f"POST {CHAT}?a HTTP/1.1"
            assert json.loads(engine_request.body) == {"model": "Qwen/Q", "messages": []}
            assert not any(engine_request.get(name) for name in ("upgrade", "http2-settings"))
            wire.send(OK)
        with client.makefile("rb") as answers:
            assert answers.read().count(b"HTTP/1.1 200 OK\r\n") == 3


def test_a_fallback_answers_for_its_model_and_not_the_other_way_round(spark):
    hot(spark, "safe")
    status = json.loads(ask(spark, "GET", "/v1/models/mistral")[1])["lockstep"]
    assert (status["state"], status["alias_of"]) == ("hot", None)
    send(spark, {"model": "mistral", "messages": []}, to="safe")
    hot(spark, "mistral")
    answer, body = ask(spark, "POST", CHAT, {"model": "safe"})
    assert answer.status == 503 and "mistral is hot" in error(body)["message"]


def test_what_is_cold_is_refused_with_who_may_switch(spark):
    """The form of Messages: process/test_packages.py."""
    answer, body = ask(spark, "POST", CHAT, {"model": "mistral", "messages": []})
    assert answer.status == 503 and int(answer.getheader("retry-after") or 0) > 0
    fault = error(body)
    message = fault.pop("message")
    assert "qwen is hot" in message and "role operate" in message and "switch.sh mistral" in message
    assert fault == {"type": "api_error", "param": None, "code": 503}
    spark.nobody_asked("mistral")


def test_auto_while_nothing_is_hot(spark):
    hot(spark, None)
    answer, body = ask(spark, "POST", CHAT, {"model": "auto"})
    assert answer.status == 503 and "no model is hot on spark1" in error(body)["message"]
    ids = [model["id"] for model in json.loads(ask(spark, "GET", "/v1/models")[1])["data"]]
    assert "auto" not in ids


STOP_ID = {"stop_token_ids": [151645]}


@pytest.mark.parametrize(
    "options",
    [
        *({"top_logprobs": 21}, {"top_logprobs": "1000000"}, {"logprobs": 21}),
        *({"prompt_logprobs": -1}, {"n": 129}, {"n": 0}, {"best_of": 5_000_000}),
        *({"stop_token_ids": [9_999_999]}, {"stop_token_ids": [-1]}),
        *({**STOP_ID, "min_tokens": 1}, {**STOP_ID, "min_new_tokens": 5}),
        *({"allowed_token_ids": [2**19]}, {"logit_bias": {"9999999": 5}}, {"tokens": [2**19]}),
        *({"prompt": [1, 2**31]}, {"input": [[1, 2], [-5]]}),
        {"kv_transfer_params": {"tp_size": 10**9}},
    ],
    ids=str,
)
def test_what_is_known_to_end_an_engine_is_refused(spark, options):
    answer, body = ask(spark, "POST", CHAT, {"model": "qwen", **options})
    assert answer.status == 400 and next(iter(options)) in error(body)["message"]
    # The last of several values counts, here as in the engine.
    key, value = next(iter(options.items()))
    twice = f'{{"model":"qwen","{key}":null,"{key}":{json.dumps(value)}'.encode()
    if len(options) == 1:
        assert ask(spark, "POST", CHAT, twice + b"}")[0].status == 400
    spark.nobody_asked()


ENDS = '"n":5000000}'


@pytest.mark.parametrize(
    ("status", "path", "body", "headers"),
    [
        (400, CHAT, f"{{{ENDS}", {}),
        # vLLM and SGLang read each of these as the first one.
        (400, CHAT, f"{{{ENDS}", {"Content-Encoding": "identity"}),
        (404, f"{CHAT}%0A", f"{{{ENDS}", {}),
        (400, CHAT, f"{{{ENDS}".encode("utf-16"), {}),
        (400, CHAT, b'{"x":"\xed\xa0\x80",' + ENDS.encode(), {}),
        (400, CHAT, f'{{"x":"{"," * json_value_replacement.VALUES}",{ENDS}', {}),
        (400, CHAT, f'{{"x":{"[" * 2000 + "]" * 2000},{ENDS}', {}),
    ],
    ids=range(7),
)
def test_it_is_refused_at_a_models_own_port_too(spark, status, path, body, headers):
    hot(spark, "mistral")
    data = body.encode() if isinstance(body, str) else body
    assert ask(spark, "POST", path, data, headers, listener="model")[0].status == status
    spark.nobody_asked("mistral")


def test_usual_values_pass(spark):
    usual = {
        **{"n": 2, "top_logprobs": 20, "logprobs": True, **STOP_ID},
        **{"min_tokens": 0, "logit_bias": {"5": -100}, "best_of": None, "stream": None},
    }
    request = send(spark, {"model": "qwen", **usual})[2]
    assert json.loads(request.body) == {"model": "Qwen/Q", **usual}


OFFER = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}


@pytest.mark.parametrize(
    ("status", "words", "parts"),
    [
        (400, "no JSON object", ("POST", CHAT, b"")),
        (400, "model: Field required", ("POST", CHAT, b"{}")),
        (400, "model:", ("POST", CHAT, b'{"model":""}')),
        (400, "model:", ("POST", CHAT, b'{"model":"' + b"x" * 300 + b'"}')),
        (404, "'nobody' here; models: qwen, coder,", ("POST", CHAT, b'{"model":"nobody"}')),
        (400, "n:", ("POST", CHAT, b'{"model":"qwen","n":"many"}')),
        (413, "larger than 1 MiB", ("POST", CHAT, b'{"x":"' + b"x" * 2**20 + b'"}')),
        (415, "compressed", ("POST", CHAT, b"\x1f", {"Content-Encoding": "gzip"})),
        (404, "no such path", ("GET", "/nope")),
        (404, "no such path", ("POST", "/invocations")),
        (404, "no such path", ("POST", "/v1/../pause")),
        (405, f"{CHAT} does not take GET", ("GET", CHAT)),
        (405, "does not take GET", ("GET", "/v1/responses", None, OFFER)),
    ],
    ids=range(13),
)
def test_what_is_unreadable_is_refused_and_other_paths_are_closed(spark, status, words, parts):
    answer, body = ask(spark, *parts)
    assert (answer.status, error(body)["code"]) == (status, status)
    assert words in error(body)["message"]
    spark.nobody_asked()


def test_a_head_that_is_too_long_is_a_431(spark):
    for request_head in (
        b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"x" * LONGEST_HEAD),
        b"GET / HTTP/1.1\r\nx: %s" % (b"x" * (LONGEST_HEAD + 70_000)),
    ):
        with spark.raw() as client:
            client.sendall(request_head)
            assert client.recv(65536).startswith(b"HTTP/1.1 431 ")


def wait_for_places(spark: Spark) -> None:
    """Wait until Anna's requests are taken again."""
    request = ("POST", CHAT, {"model": "nobody"}, USE)
    until(lambda: ask(spark, *request)[0].status == 404, "places are given back")


def test_the_bounds_of_a_key_of_who_has_none_and_of_all(spark):
    def refusal(headers: dict[str, str]) -> str:
        answer, body = ask(spark, "POST", CHAT, {"model": "qwen"}, headers)
        assert answer.status == 429 and answer.getheader("retry-after")
        return str(error(body)["message"])

    clients = [begin(spark, headers=USE) for _ in range(2)]
    assert "2 requests of anna are under way" in refusal(USE)
    clients += [begin(spark) for _ in range(5)]
    # The last places are for people with a key.
    assert "7 requests are under way" in refusal({})
    clients.append(begin(spark, headers=OPERATE))
    assert "8 requests are under way" in refusal(OPERATE)
    for client, _ in clients:
        client.close()
    for _, wire in clients:
        assert wire.wait_until_closed()
    wait_for_places(spark)


def test_a_watcher_has_a_place_as_long_as_it_watches(spark):
    with contextlib.ExitStack() as stack:
        for status in (200, 200, 429):
            client = stack.enter_context(contextlib.closing(spark.client()))
            client.request("GET", "/status?stream", headers=USE)
            answer = stack.enter_context(client.getresponse())
            assert answer.status == status
        assert ask(spark, "POST", CHAT, {"model": "qwen"}, USE)[0].status == 429
        assert ask(spark, "GET", "/status", headers=USE)[0].status == 200
    wait_for_places(spark)


def test_bodies_that_are_held_at_once_are_bounded_together(tmp_path):
    body = json.dumps({"model": "qwen", "x": "x" * 2**19}).encode()
    with gateway_process.running(tmp_path, limits=gateway_process.Limits(body_mib=1)) as spark:
        clients = [spark.client() for _ in range(15)]
        wires = []
        for client in clients:
            # Of a body in chunks nobody knows how long it will be.
            client.request("POST", CHAT, iter((body,)), encode_chunked=True)
            wires.append(spark.accept())
            wires[-1].next_request()
        answer, reply_body = ask(spark, "POST", CHAT, body)
        assert answer.status == 429 and "large bodies" in error(reply_body)["message"]
        clients[0].close()
        request = ("POST", CHAT, body.replace(b"qwen", b"none"))
        until(lambda: ask(spark, *request)[0].status == 404, "the room of who has left is free")


def test_requests_refusals_and_tokens_are_counted_per_key(tmp_path):
    with gateway_process.running(tmp_path) as spark:
        usage = b'"usage":{"prompt_tokens":7,"completion_tokens":40,"total_tokens":47}'
        client, wire, _ = send(spark, b'{"model":"qwen"}', headers=USE)
        whole = b'{"choices":[%s],%s}' % (b"1," * 5000 + b"1", usage)
        wire.send(reply(whole))
        client.getresponse().read()
        client, wire = begin(spark, headers=USE)
        events = chunk(b"data: {}\n\n" * 900) + chunk(b"data: {%s}\n\ndata: [DONE]\n\n" % usage)
        wire.send(STREAM + events + b"0\r\n\r\n")
        client.getresponse().read()
        ask(spark, "POST", CHAT, {"model": "qwen", "n": 500}, USE)
        ask(spark, "GET", "/v1/models", listener="open")
        samples = ask(spark, "GET", "/metrics")[1].decode().splitlines()
        assert {
            'requests_total{model="qwen",person="anna"} 2.0',
            'tokens_total{kind="prompt",model="qwen",person="anna"} 14.0',
            'tokens_total{kind="completion",model="qwen",person="anna"} 80.0',
            'refusals_total{person="anna",reason="engine"} 1.0',
            'refusals_total{person="-",reason="key"} 1.0',
            'first_byte_seconds_count{model="qwen"} 2.0',
            'running{model="qwen"} 0.0',
        } <= {sample.removeprefix("lockstep_gateway_") for sample in samples}
        spark.stop()
        usage = json.loads((spark.paths.root / "usage.json").read_text())["anna"]
        assert (usage["requests"], usage["prompt_tokens"], usage["refusals"]) == (2, 14, 1)
