"""A request's body: what is read of it, and that one value is put in another's place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.onhost.gateway.wire.answers import Refused
from lockstep.onhost.gateway.wire.incoming import AskedOfModel, Document

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
def test_another_model_is_named_and_nothing_else_changes(
    others: dict[str, Any], name: str, indent: int | None, plain: bool
) -> None:
    request = {**others, "model": name}
    body = json.dumps(request, ensure_ascii=plain, indent=indent).encode()
    document = Document(body)
    assert document.members["model"].value == name
    assert json.loads(document.rewritten("other", merge=False)) == {**request, "model": "other"}
    assert document.rewritten(name, merge=True) == body
    start, end, _ = document.members["model"]
    text = body.decode()
    expected = f'{text[:start]}"other"{text[end:]}'.encode()
    assert document.rewritten("other", merge=False) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b'{"model"',
        b'{"model": [] ',
        b'{"model": "a" x}',
        b'{"model": "a"} {}',
        b"{1: 2}",
        b"\xff\xfe{",
        b'{"model": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="no JSON object"):
        Document(body)


def test_a_refusal_names_the_key_and_repeats_no_value() -> None:
    with pytest.raises(Refused) as refused:
        Document(b'{"model": "m", "n": "secret"}').read(AskedOfModel)
    assert refused.value.status == 400
    assert "n:" in refused.value.message and "secret" not in refused.value.message
