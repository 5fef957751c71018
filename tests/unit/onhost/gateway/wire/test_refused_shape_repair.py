"""Conversations that a template refuses: what is made of them, and that no word is lost."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, TemplateError

from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES, Shape
from lockstep.onhost.gateway.wire.request_fields import JsonBody

CHAT, RESPONSES, MESSAGES_PATH = "/v1/chat/completions", "/v1/responses", "/v1/messages"
# Rules of Mistral's template (Small 4, read 2026-11): who follows whom, and which roles there are.
MISTRAL = """
{%- set turns = messages[1:] if messages[0].role == 'system' else messages %}
{%- set turn = namespace(number=0) %}
{%- for message in turns %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (turn.number % 2 == 0) %}
{{- raise_exception('turns') }}
{%- endif %}
{%- set turn.number = turn.number + 1 %}
{%- endif %}
{%- if message.role not in ('user', 'assistant', 'tool') %}{{ raise_exception('roles') }}{% endif %}
{%- if message.role == 'assistant' and not message.content and not message.tool_calls %}
{{- raise_exception('empty') }}
{%- endif %}
{%- if message.content is string or message.role == 'tool' %}{{ message.content | string }}
{%- else %}{% for part in message.content or [] %}{{ part.text }}{% endfor %}
{%- endif %}
{%- endfor %}"""


def even_out(
    path: str, request: dict[str, Any], shapes: Any = SHAPES
) -> tuple[dict[str, Any], Any]:
    body, shapes_met = JsonBody(json.dumps(request).encode()).body_for_model(None, path, shapes)
    return json.loads(body), shapes_met


def merge(messages: list[Any]) -> list[Any]:
    return even_out(CHAT, {"messages": messages}, ("same_role",))[0]["messages"]


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "expected_messages"),
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
        ([user([text("a")]), user([text("b")])], [user([text("a"), text("\n\n"), text("b")])]),
        ([user("a"), user([text("b")])], [user([text("a"), text("\n\n"), text("b")])]),
        ([user(""), user("a"), user(None), user([])], [user("a")]),
        ([user("a", name="ann"), user("b", name="ann")], [user("a\n\nb", name="ann")]),
        (
            [assistant("a", refusal=None, tool_calls=[]), assistant("b", audio=None)],
            [assistant("a\n\nb", refusal=None, tool_calls=[], audio=None)],
        ),
    ],
)
def test_adjacent_messages_of_one_role_become_one_message(
    messages: list[Any], expected_messages: list[Any]
) -> None:
    assert merge(messages) == expected_messages


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


SYSTEM, TOOL = {"role": "system", "content": "s"}, {"role": "tool", "tool_call_id": "c1"}
CALLS = assistant(None, tool_calls=[CALL])
LATE = {"role": "system", "content": "late"}
PICTURES = text("Pictures of the tool's result:")


@pytest.mark.parametrize(
    ("messages", "expected_messages", "shapes_met"),
    [
        ([{"role": "developer", "content": "s"}, user("a")], [SYSTEM, user("a")], ["developer"]),
        (
            [SYSTEM, LATE, user("a")],
            [{**SYSTEM, "content": "s\n\nlate"}, user("a")],
            ["late_system"],
        ),
        (
            [SYSTEM, user("a"), LATE, assistant("b"), LATE],
            [SYSTEM, user("a\n\nlate"), assistant("b"), user("late")],
            ["late_system", "same_role"],
        ),
        (
            [user("a"), CALLS, LATE, {**TOOL, "content": "r"}, assistant("b")],
            [user("a"), CALLS, {**TOOL, "content": "r\n\nlate"}, assistant("b")],
            ["late_system"],
        ),
        (
            [
                user("a"),
                CALLS,
                {**TOOL, "content": "r"},
                user("x"),
                user([text("y")]),
                assistant("b"),
            ],
            [user("a"), CALLS, {**TOOL, "content": "r\n\nx\n\ny"}, assistant("b")],
            ["same_role", "user_after_tool"],
        ),
        (
            [user("a"), CALLS, {**TOOL, "content": "r"}, user([text("x"), IMAGE])],
            [
                user("a"),
                CALLS,
                {**TOOL, "content": "r"},
                assistant("Understood."),
                user([text("x"), IMAGE]),
            ],
            ["user_after_tool"],
        ),
        (
            [user("a"), CALLS, {**TOOL, "content": [text("r"), IMAGE]}],
            [
                *(user("a"), CALLS, {**TOOL, "content": "r"}, assistant("Understood.")),
                user([PICTURES, IMAGE]),
            ],
            ["tool_picture", "user_after_tool"],
        ),
        # The assistant's words and its calls apart, and an answer after them: two in a row.
        (
            [user("a"), assistant("b"), CALLS, {**TOOL, "content": "r"}, assistant("c")],
            [
                user("a"),
                assistant("b", tool_calls=[CALL]),
                {**TOOL, "content": "r"},
                assistant("c"),
            ],
            ["same_role"],
        ),
        # What the template takes stays.
        ([SYSTEM, user("a"), CALLS, {**TOOL, "content": [text("r")]}], None, []),
        ([user("a"), assistant("b"), CALLS, {**TOOL, "content": "r"}, user("c")], None, []),
    ],
)
def test_shapes_of_a_chat_are_evened_out(
    messages: list[Any], expected_messages: list[Any] | None, shapes_met: list[Shape]
) -> None:
    assert even_out(CHAT, {"messages": messages}) == (
        {"messages": expected_messages or messages},
        shapes_met,
    )


def item(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def test_codex_and_its_items_are_evened_out() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    request_body = {
        "instructions": "x",
        "input": [
            *(item("developer", "d"), item("user", "AGENTS.md"), item("user", "fix it")),
            *(item("assistant", "I look."), call, {**output, "output": [picture]}),
            *(item("user", "and quickly"),),
        ],
    }
    blank = {"type": "input_text", "text": "\n\n"}
    user_content = [
        *item("user", "AGENTS.md")["content"],
        blank,
        *item("user", "fix it")["content"],
    ]
    picture_content = [{"type": "input_text", "text": "Pictures of the tool's result:"}, picture]
    assert even_out(RESPONSES, request_body) == (
        {
            "instructions": "x\n\nd",
            "input": [
                {**item("user", ""), "content": user_content},
                *(item("assistant", "I look."), call),
                {**output, "output": "(a picture, which follows)"},
                {"type": "message", "role": "assistant", "content": "Understood."},
                {
                    **item("user", ""),
                    "content": [*picture_content, *item("user", "and quickly")["content"]],
                },
            ],
        },
        list(SHAPES_MET),
    )
    assert even_out(RESPONSES, {"input": "text"}) == ({"input": "text"}, [])


SHAPES_MET = ("developer", "late_system", "tool_picture", "same_role", "user_after_tool")


def test_claude_code_and_its_reminders_are_evened_out() -> None:
    call_message = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "Bash"}],
    }
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "r"}
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    turns = [user("q"), call_message, user([result, result, text("<system-reminder>")])]
    merged_turn = user([result, {**result, "content": "r\n\n<system-reminder>"}])
    assert even_out(MESSAGES_PATH, {"messages": turns}) == (
        {"messages": [user("q"), call_message, merged_turn]},
        ["user_after_tool"],
    )
    turns = [
        LATE,
        user("q"),
        call_message,
        user([{**result, "content": [image]}]),
        user("more"),
        LATE,
    ]
    words = {**result, "content": "(a picture, which follows)"}
    assert even_out(MESSAGES_PATH, {"system": [text("s")], "messages": turns}) == (
        {
            "system": [text("s"), text("\n\n"), text("late")],
            "messages": [
                *(user("q"), call_message, user([words]), assistant("Understood.")),
                user([PICTURES, image, text("more\n\nlate")]),
            ],
        },
        ["late_system", "tool_picture", "same_role", "user_after_tool"],
    )
    plain_request = {"system": "s", "messages": [user("q"), call_message, user([result])]}
    assert even_out(MESSAGES_PATH, plain_request) == (plain_request, [])


@pytest.mark.parametrize(
    ("body", "expected_body"),
    [
        (b'{"tools": [] , "n":1}', b'{"n":1}'),
        (b'{"n":1 , "tools": []}', b'{"n":1 }'),
        (b'{"tool_choice":"auto", "n":1, "tools": [] }', b'{"n":1 }'),
        (b'{"tools":[],"tool_choice":"auto"}', b"{}"),
        # Left out, the first one would count.
        (b'{"tools":[{}],"tools":[]}', b'{"tools":[{}],"tools":null}'),
        (b'{"tools":[{}], "tool_choice":"auto"}', b'{"tools":[{}], "tool_choice":"auto"}'),
    ],
)
def test_an_empty_list_of_tools_is_left_out_with_its_choice(
    body: bytes, expected_body: bytes
) -> None:
    assert JsonBody(body).body_for_model(None, CHAT, ("empty_tools",))[0] == expected_body


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


def roles_and_texts(messages: list[Any]) -> list[tuple[Any, Any]]:
    """Everything that is said, in order and with its role, without blank lines."""
    pieces: list[tuple[Any, Any]] = []
    for message in messages:
        if not isinstance(message, dict):
            pieces.append((None, message))
            continue
        by = tuple(json.dumps(message.get(key) or None) for key in ("role", "name", "tool_calls"))
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            words = part if isinstance(part, str) else None
            if isinstance(part, dict) and part.get("type") == "text":
                words = part["text"]
            if words is None:
                pieces += [(by, part)] if part is not None else []
            else:
                pieces += [(by, letter) for letter in words if not letter.isspace()]
    return pieces


@given(MESSAGES)
def test_order_is_kept_and_nothing_is_lost(messages: list[Any]) -> None:
    assert roles_and_texts(merge(messages)) == roles_and_texts(messages)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), max_size=9))
def test_plain_talk_alternates_afterwards(talk: list[tuple[str, str]]) -> None:
    roles = [message["role"] for message in merge([{"role": r, "content": c} for r, c in talk])]
    assert all(role != next_role for role, next_role in pairwise(roles))


TURNS = st.sampled_from(
    [
        *([user("a")], [user([text("b"), IMAGE])], [assistant("c")], [SYSTEM], [LATE]),
        *([CALLS], [CALLS, {**TOOL, "content": "r"}], [CALLS, LATE, {**TOOL, "content": [IMAGE]}]),
        [assistant("c", tool_calls=[CALL]), {**TOOL, "content": [text("r")]}],
        [{"role": "developer", "content": "d"}],
    ]
)


@given(st.lists(TURNS, max_size=9))
def test_the_strictest_template_takes_it_and_what_it_takes_stays(many: list[Any]) -> None:
    turns = [SYSTEM, user("a"), *(turn for turns in many for turn in turns)]
    out = even_out(CHAT, {"messages": turns})[0]["messages"]
    render_chat(out)
    if is_accepted(turns):
        assert out == turns
    for word in ("AAAA", "late", "'c1'"):
        assert str(out).count(word) == str(turns).count(word)
    # And nothing is left to do.
    assert even_out(CHAT, {"messages": out})[1] == []


def render_chat(messages: list[Any]) -> str:
    def refuse(reason: str) -> None:
        raise TemplateError(f"{reason}: {messages}")

    return Environment().from_string(MISTRAL).render(messages=messages, raise_exception=refuse)


def is_accepted(messages: list[Any]) -> bool:
    with contextlib.suppress(TemplateError):
        # A list that became text was not understood.
        return "image_url" not in render_chat(messages)
    return False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def merged_body(body: bytes) -> bytes:
    """The body at the port of a model whose recipe merges no roles."""
    return JsonBody(body).body_for_model(None, CHAT, ("same_role",))[0]


@given(st.dictionaries(WORDS, JSON, max_size=4), MESSAGES, st.sampled_from([None, 2]))
def test_a_body_says_the_same_but_for_its_messages(
    other_keys: dict[str, Any], messages: list[Any], indent: int | None
) -> None:
    request = {**other_keys, "messages": messages}
    body = json.dumps(request, ensure_ascii=False, indent=indent).encode()
    assert json.loads(merged_body(body)) == {**request, "messages": merge(messages)}


@given(MESSAGES, st.sampled_from([None, "s", [text("s")], 7, [7]]))
def test_whatever_a_body_holds_is_read(messages: list[Any], system: Any) -> None:
    calls = [CALLS, {"role": "tool", "content": {}}, {"type": "function_call_output", "output": 7}]
    for path, key in (CHAT, "messages"), (RESPONSES, "input"), (MESSAGES_PATH, "messages"):
        for turns in (messages, [*calls, *messages], [user([{"type": "tool_result"}]), *messages]):
            even_out(path, {key: turns, "system": system, "instructions": system})


def test_every_byte_beside_the_messages_stays() -> None:
    prefix = b' {"seed": 1e2,\t"x": 0.10, "messages" : '
    suffix = b' , "y":"\\u00e9\xc3\xa9" } \n'
    twice = json.dumps([user("a é"), user("b")]).encode()
    once = json.dumps([user("a é\n\nb")], separators=(",", ":")).encode()
    assert merged_body(prefix + twice + suffix) == prefix + once + suffix


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
