"""Merging messages of one role: what is merged, what is left alone, and that nothing is lost."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.onhost.gateway.wire.incoming import Document
from lockstep.onhost.gateway.wire.merge_roles import merge


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("a"), user("b"), user("c")], [user("a\n\nb\n\nc")]),
        (
            [user("a"), assistant("b"), assistant("c"), user("d")],
            [user("a"), assistant("b\n\nc"), user("d")],
        ),
        (
            [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, user("c")],
            [{"role": "system", "content": "a\n\nb"}, user("c")],
        ),
        ([user([IMAGE]), user([IMAGE])], [user([IMAGE, IMAGE])]),
        ([user([text("a"), IMAGE]), user("b")], [user([text("a"), IMAGE, text("b")])]),
        ([user("a"), user([IMAGE, text("b")])], [user([text("a"), IMAGE, text("b")])]),
        (
            [user([text("a")]), user([text("b")])],
            [user([text("a"), text("\n\n"), text("b")])],
        ),
        ([user("a"), user([text("b")])], [user([text("a"), text("\n\n"), text("b")])]),
        ([user(""), user("a"), user(None), user([])], [user("a")]),
        ([user("a", name="ann"), user("b", name="ann")], [user("a\n\nb", name="ann")]),
        (
            [assistant("a", refusal=None, tool_calls=[]), assistant("b", audio=None)],
            [assistant("a\n\nb", refusal=None, tool_calls=[], audio=None)],
        ),
    ],
)
def test_neighbours_of_one_role_become_one_message(
    messages: list[Any], expected: list[Any]
) -> None:
    assert merge(messages) == expected


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a"), assistant("b"), user("c")],
        [user("a", name="ann"), user("b", name="bob")],
        [user("a", name="ann"), user("b")],
        [assistant(None, tool_calls=[CALL]), assistant("a")],
        [assistant("a"), assistant("b", tool_calls=[CALL])],
        [assistant(None, tool_calls=[CALL]), assistant(None, tool_calls=[CALL])],
        [
            {"role": "tool", "tool_call_id": "c1", "content": "a"},
            {"role": "tool", "tool_call_id": "c1", "content": "a"},
        ],
        [{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}],
        [assistant("a", reasoning_content="x"), assistant("b", reasoning_content="y")],
        [assistant("a"), assistant("b", prefix=True)],
        [user({"text": "a"}), user("b")],
        [user("a"), user(7)],
        [{"role": "narrator", "content": "a"}, {"role": "narrator", "content": "b"}],
        [{"content": "a"}, {"content": "b"}],
        ["a", "a", None, None, 7, 7],
        [{"role": ["user"], "content": "a"}, {"role": ["user"], "content": "b"}],
    ],
)
def test_where_merging_would_change_what_is_said_nothing_changes(messages: list[Any]) -> None:
    assert merge(messages) == messages


def test_the_messages_given_are_left_as_they_are() -> None:
    parts = [text("a")]
    messages = [user(parts), user("b")]
    merge(messages)
    assert messages == [user([text("a")]), user("b")]
    assert parts == [text("a")]


WORDS = st.text('ab \n"\\\té\u2028😀', max_size=8)
PART = st.one_of(WORDS.map(text), st.just(IMAGE), WORDS, st.integers())
CONTENT = st.one_of(st.none(), WORDS, st.lists(PART, max_size=3), st.integers())
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": CONTENT},
        optional={
            "name": st.sampled_from(["ann", "bob", None]),
            "tool_calls": st.sampled_from([[], None, [CALL]]),
        },
    ),
    st.sampled_from([None, 7, "user", {}]),
)
MESSAGES = st.lists(MESSAGE, max_size=8)


def said(messages: list[Any]) -> list[tuple[Any, Any]]:
    """Everything that is said, in order and by whom, without blank lines."""
    found: list[tuple[Any, Any]] = []
    for message in messages:
        if not isinstance(message, dict):
            found.append((None, message))
            continue
        by = tuple(json.dumps(message.get(key) or None) for key in ("role", "name", "tool_calls"))
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            words = part if isinstance(part, str) else None
            if isinstance(part, dict) and part.get("type") == "text":
                words = part["text"]
            if words is None:
                found += [(by, part)] if part is not None else []
            else:
                found += [(by, letter) for letter in words if not letter.isspace()]
    return found


@given(MESSAGES)
def test_order_is_kept_and_nothing_is_lost(messages: list[Any]) -> None:
    assert said(merge(messages)) == said(messages)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), max_size=9))
def test_plain_talk_alternates_afterwards(talk: list[tuple[str, str]]) -> None:
    roles = [message["role"] for message in merge([{"role": r, "content": c} for r, c in talk])]
    assert all(one != other for one, other in pairwise(roles))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def merged_body(body: bytes) -> bytes:
    """As at the port of a target whose recipe merges no roles."""
    return Document(body).rewritten(None, merge=True)


@given(st.dictionaries(WORDS, JSON, max_size=4), MESSAGES, st.sampled_from([None, 2]))
def test_a_body_says_the_same_but_for_its_messages(
    others: dict[str, Any], messages: list[Any], indent: int | None
) -> None:
    request = {**others, "messages": messages}
    body = json.dumps(request, ensure_ascii=False, indent=indent).encode()
    assert json.loads(merged_body(body)) == {**request, "messages": merge(messages)}


def test_every_byte_beside_the_messages_stays() -> None:
    before = b' {"seed": 1e2,\t"x": 0.10, "messages" : '
    after = b' , "y":"\\u00e9\xc3\xa9" } \n'
    twice = json.dumps([user("a é"), user("b")]).encode()
    once = json.dumps([user("a é\n\nb")], separators=(",", ":")).encode()
    assert merged_body(before + twice + after) == before + once + after


def test_of_two_lists_the_last_counts_as_for_every_parser() -> None:
    body = b'{"messages": [1], "messages": [{"role":"user","content":"a"},'
    body += b'{"role":"user","content":"b"}]}'
    assert json.loads(merged_body(body))["messages"] == [user("a\n\nb")]
    assert merged_body(body).startswith(b'{"messages": [1], ')


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"messages": "a"}',
        b'{"prompt": "a"}',
        b'{ "messages" : [{"role": "user", "content": "a"}] }',
    ],
)
def test_what_needs_no_merging_passes_byte_for_byte(body: bytes) -> None:
    assert merged_body(body) == body
