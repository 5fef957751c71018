"""Conversations that a template refuses: what is made of them, and that no word is lost."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, TemplateError
from lab_servers import CONTENT

from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES
from lockstep.onhost.gateway.wire.request_fields import JsonBody

CHAT, RESPONSES, MESSAGES_PATH = "/v1/chat/completions", "/v1/responses", "/v1/messages"
#: A template that alternates: who follows whom, and which roles and parts there are.
MISTRAL = Environment().from_string((CONTENT / "models/mistral.jinja").read_text(encoding="utf-8"))


def even_out(path: str, request: dict[str, Any], shapes: Any = SHAPES) -> tuple[Any, Any]:
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


def tool(content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLS = assistant(None, tool_calls=[CALL])
SYSTEM, LATE = {"role": "system", "content": "s"}, {"role": "system", "content": "late"}
DEVELOPER = {"role": "developer", "content": "s"}
PICTURES = "Pictures of the tool's result:"


@pytest.mark.parametrize(
    ("messages", "merged_messages"),
    [
        ([user("a"), user("b"), user("c")], [user("a\n\nb\n\nc")]),
        ([user([IMAGE]), user([IMAGE])], [user([IMAGE, IMAGE])]),
        ([user([text("a"), IMAGE]), user("b")], [user([text("a"), IMAGE, text("b")])]),
        ([user("a"), user([text("b")])], [user([text("a"), text("\n\n"), text("b")])]),
        ([user(""), user("a"), user(None), user([])], [user("a")]),
        ([user("a", name="ann"), user("b", name="ann")], [user("a\n\nb", name="ann")]),
        ([assistant("a", tool_calls=[]), assistant("b")], [assistant("a\n\nb", tool_calls=[])]),
        # Where merging would change what is said, nothing changes.
        ([user("a", name="ann"), user("b", name="bob")], None),
        ([CALLS, assistant("a")], None),
        ([assistant("a"), assistant("b", tool_calls=[CALL])], None),
        ([assistant("a", reasoning_content="x"), assistant("b", reasoning_content="y")], None),
        ([user({"text": "a"}), user("b")], None),
        ([{"role": "narrator", "content": "a"}, {"role": "narrator", "content": "b"}], None),
        (["a", "a", None, None, 7, 7], None),
    ],
)
def test_adjacent_messages_that_differ_in_their_content_alone_become_one(messages, merged_messages):
    assert merge(messages) == (merged_messages or messages)


@pytest.mark.parametrize(
    ("messages", "expected_messages", "shapes_met"),
    [
        ([DEVELOPER, user("a")], [SYSTEM, user("a")], "developer"),
        ([SYSTEM, LATE, user("a")], [{**SYSTEM, "content": "s\n\nlate"}, user("a")], "late_system"),
        (
            [SYSTEM, user("a"), LATE, assistant("b"), LATE],
            [SYSTEM, user("a\n\nlate"), assistant("b"), user("late")],
            "late_system same_role",
        ),
        (
            [user("a"), CALLS, LATE, tool("r"), assistant("b")],
            [user("a"), CALLS, tool("r\n\nlate"), assistant("b")],
            "late_system",
        ),
        (
            [user("a"), CALLS, tool("r"), user("x"), user([text("y")]), assistant("b")],
            [user("a"), CALLS, tool("r\n\nx\n\ny"), assistant("b")],
            "same_role user_after_tool",
        ),
        (
            [CALLS, tool("r"), user([text("x"), IMAGE])],
            [CALLS, tool("r"), assistant("Understood."), user([text("x"), IMAGE])],
            "user_after_tool",
        ),
        (
            [CALLS, tool([text("r"), IMAGE])],
            [CALLS, tool("r"), assistant("Understood."), user([text(PICTURES), IMAGE])],
            "tool_picture user_after_tool",
        ),
        # The assistant's words and its calls apart, and an answer after them: two in a row.
        (
            [user("a"), assistant("b"), CALLS, tool("r"), assistant("c")],
            [user("a"), assistant("b", tool_calls=[CALL]), tool("r"), assistant("c")],
            "same_role",
        ),
        # What the template takes stays.
        ([user("a"), assistant("b"), CALLS, tool("r"), user("c")], None, ""),
    ],
)
def test_shapes_of_a_chat_are_evened_out(messages, expected_messages, shapes_met):
    expected = {"messages": expected_messages or messages}, shapes_met.split()
    assert even_out(CHAT, {"messages": messages}) == expected


def item(role: str, *words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": word} for word in words]
    return {"type": "message", "role": role, "content": content}


def test_codex_and_its_items_are_evened_out():
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    items = [
        *(item("developer", "d"), item("user", "AGENTS.md"), item("user", "fix it")),
        *(item("assistant", "I look."), call, {**output, "output": [picture]}),
        item("user", "and quickly"),
    ]
    picture_message = item("user", PICTURES, "and quickly")
    picture_message["content"].insert(1, picture)
    expected_items = [
        *(item("user", "AGENTS.md", "\n\n", "fix it"), item("assistant", "I look."), call),
        {**output, "output": "(a picture, which follows)"},
        {"type": "message", "role": "assistant", "content": "Understood."},
        picture_message,
    ]
    assert even_out(RESPONSES, {"instructions": "x", "input": items}) == (
        {"instructions": "x\n\nd", "input": expected_items},
        ["developer", "late_system", "tool_picture", "same_role", "user_after_tool"],
    )
    assert even_out(RESPONSES, {"input": "text"}) == ({"input": "text"}, [])


def test_claude_code_and_its_reminders_are_evened_out():
    call = assistant([{"type": "tool_use", "id": "t1", "name": "Bash"}])
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "r"}
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    turns = [user("q"), call, user([result, result, text("<system-reminder>")])]
    merged_turn = user([result, {**result, "content": "r\n\n<system-reminder>"}])
    assert even_out(MESSAGES_PATH, {"messages": turns}) == (
        {"messages": [user("q"), call, merged_turn]},
        ["user_after_tool"],
    )
    turns = [LATE, user("q"), call, user([{**result, "content": [image]}]), user("more"), LATE]
    words = {**result, "content": "(a picture, which follows)"}
    expected_turns = [
        *(user("q"), call, user([words]), assistant("Understood.")),
        user([text(PICTURES), image, text("more\n\nlate")]),
    ]
    assert even_out(MESSAGES_PATH, {"system": [text("s")], "messages": turns}) == (
        {"system": [text("s"), text("\n\n"), text("late")], "messages": expected_turns},
        ["late_system", "tool_picture", "same_role", "user_after_tool"],
    )
    plain_request = {"system": "s", "messages": [user("q"), call, user([result])]}
    assert even_out(MESSAGES_PATH, plain_request) == (plain_request, [])


@pytest.mark.parametrize(
    ("body", "expected_body"),
    [
        (b'{"tools": [] , "n":1}', b'{"n":1}'),
        (b'{"tool_choice":"auto", "n":1, "tools": [] }', b'{"n":1 }'),
        (b'{"tools":[],"tool_choice":"auto"}', b"{}"),
        # Left out, the first one would count.
        (b'{"tools":[{}],"tools":[]}', b'{"tools":[{}],"tools":null}'),
        (b'{"tools":[{}], "tool_choice":"auto"}', b'{"tools":[{}], "tool_choice":"auto"}'),
    ],
)
def test_an_empty_list_of_tools_is_left_out_with_its_choice(body, expected_body):
    assert JsonBody(body).body_for_model(None, CHAT, ("empty_tools",))[0] == expected_body


WORDS = st.text('ab \n"\\\té\u2028😀', max_size=8)
PART = st.one_of(WORDS.map(text), st.just(IMAGE), WORDS, st.integers())
CONTENT = st.one_of(st.none(), WORDS, st.lists(PART, max_size=3), st.integers())
KEYS = {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": CONTENT}
MORE_KEYS = {
    "name": st.sampled_from(["ann", "bob", None]),
    "tool_calls": st.sampled_from([[], None, [CALL]]),
}
ODD = st.sampled_from([None, 7, "user", {}])
MESSAGES = st.lists(st.one_of(st.fixed_dictionaries(KEYS, optional=MORE_KEYS), ODD), max_size=8)


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
            is_text = isinstance(part, dict) and part.get("type") == "text"
            words = part["text"] if is_text else part
            if isinstance(words, str):
                pieces += [(by, letter) for letter in words if not letter.isspace()]
            elif part is not None:
                pieces.append((by, part))
    return pieces


@given(MESSAGES)
def test_order_is_kept_and_nothing_is_lost(messages):
    assert roles_and_texts(merge(messages)) == roles_and_texts(messages)


TURNS = st.sampled_from(
    [
        *([user("a")], [user([text("b"), IMAGE])], [assistant("c")], [SYSTEM], [LATE], [DEVELOPER]),
        *([CALLS], [CALLS, tool("r")], [CALLS, LATE, tool([IMAGE])]),
        [assistant("c", tool_calls=[CALL]), tool([text("r")])],
    ]
)


@given(st.lists(TURNS, max_size=9))
def test_the_strictest_template_takes_it_and_what_it_takes_stays(many):
    turns = [SYSTEM, user("a"), *(turn for turns in many for turn in turns)]
    out = even_out(CHAT, {"messages": turns})[0]["messages"]
    render_chat(out)
    with contextlib.suppress(TemplateError):
        render_chat(turns)
        assert out == turns
    for word in ("AAAA", "late", "'c1'"):
        assert str(out).count(word) == str(turns).count(word)
    # And nothing is left to do.
    assert even_out(CHAT, {"messages": out})[1] == []


def render_chat(messages: list[Any]) -> str:
    def refuse(reason: str) -> None:
        raise TemplateError(f"{reason}: {messages}")

    return MISTRAL.render(messages=messages, raise_exception=refuse)


@given(MESSAGES, st.sampled_from([None, "s", [text("s")], 7, [7]]))
def test_whatever_a_body_holds_is_read(messages, system):
    calls = [CALLS, {"role": "tool", "content": {}}, {"type": "function_call_output", "output": 7}]
    for path, key in (CHAT, "messages"), (RESPONSES, "input"), (MESSAGES_PATH, "messages"):
        for turns in (messages, [*calls, *messages], [user([{"type": "tool_result"}]), *messages]):
            even_out(path, {key: turns, "system": system, "instructions": system})


def test_every_byte_beside_the_last_of_two_lists_of_messages_stays():
    prefix = b' {"messages": [1], "seed": 1e2,\t"x": 0.10, "messages" : '
    suffix = b' , "y":"\\u00e9\xc3\xa9" } \n'
    twice = json.dumps([user("a é"), user("b")]).encode()
    once = json.dumps([user("a é\n\nb")], separators=(",", ":")).encode()
    body = JsonBody(prefix + twice + suffix).body_for_model(None, CHAT, ("same_role",))[0]
    assert body == prefix + once + suffix
