"""A request's body: what is read of it, and that one value is put in another's place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES
from lockstep.onhost.gateway.wire import json_value_replacement
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal
from lockstep.onhost.gateway.wire.request_fields import JsonBody, ModelRequest

CHAT = "/v1/chat/completions"
WORDS = st.text(max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(WORDS, JSON, max_size=4),
    st.text(min_size=1, max_size=20),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_another_model_is_named_and_nothing_else_changes(other_keys, name, indent, plain):
    request = {**other_keys, "model": name}
    body = json.dumps(request, ensure_ascii=plain, indent=indent).encode()
    document = JsonBody(body)
    start, end, value = document.members["model"][:3]
    assert value == name
    text = body.decode()
    expected_body = f'{text[:start]}"other"{text[end:]}'.encode()
    assert document.body_for_model("other", CHAT, ()) == (expected_body, [])
    assert json.loads(expected_body) == {**request, "model": "other"}
    assert document.body_for_model(name, CHAT, SHAPES) == (body, [])


OBJECTS = (b'{"model": [] ', b'{"model": "a" x}', b'{"model": "\xff"}', b'{"model": "a"} {}')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *((body, "no JSON object") for body in (b"", b"[1]", b"{1: 2}", b"\xff\xfe{", *OBJECTS)),
        (b'{"a":' + b"9" * 5000 + b"}", "no JSON object"),
        (b'{"model": ' + b"[" * 100_000, "too deeply"),
        (b"{" + b",".join(b'"k%d":1' % n for n in range(1001)) + b"}", "1,000 members"),
        # Equal keys are one member, and as much work.
        (b"{" + b",".join([b'"k":1'] * 1001) + b"}", "1,000 members"),
        (b'{"model":"m","prompt":[' + b",".join([b"1"] * 500_001) + b"]}", "500,000 values"),
        (b'{"model":"m","x":' + b"[" * 500_001 + b"]" * 500_001 + b"}", "500,000 values"),
    ],
    ids=range(14),
)
def test_no_object_and_one_of_too_many_values_are_refused(body, words):
    with pytest.raises(GatewayRefusal, match=words) as error:
        JsonBody(body)
    assert error.value.status == 400


def test_a_body_of_no_members_and_one_of_as_many_as_may_be_are_read():
    assert JsonBody(b" { } ").members == {}
    body = b"{" + b",".join(b'"k%d":1' % n for n in range(json_value_replacement.MEMBERS)) + b"}"
    assert len(JsonBody(body).members) == json_value_replacement.MEMBERS


def test_blanks_are_passed_over_at_once():
    # One by one in Python, 40 MiB of them would hold the gateway up for seconds.
    steps = 0

    class Counting(str):
        def __getitem__(self, at: Any) -> str:
            nonlocal steps
            steps += 1
            return str.__getitem__(self, at)

    blanks = " " * 100_000
    members = json_value_replacement.top_level_members(
        Counting(f'{blanks}{{{blanks}"model"{blanks}:{blanks}"m"{blanks}}}')
    )
    assert members["model"].value == "m" and steps < 100


def test_a_conversation_of_very_many_messages_goes_on_as_it_is():
    message = b'{"role":"user","content":"a"}'
    body = b'{"model":"m","messages":[' + b",".join([message] * 20_001) + b"]}"
    assert JsonBody(body).body_for_model("m", CHAT, SHAPES) == (body, [])


def test_a_refusal_names_the_key_and_repeats_no_value():
    with pytest.raises(GatewayRefusal) as error:
        JsonBody(b'{"model": "m", "n": "secret"}').validate_fields(ModelRequest)
    assert error.value.status == 400
    assert "n:" in error.value.message and "secret" not in error.value.message
