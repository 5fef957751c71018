"""Messages of one role in a row become one message; nothing else about a request changes.

Some chat templates answer HTTP 400 to two user messages in a row, which agents send. What is
merged here is what mistral_common merges by itself when vLLM serves the same model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# A `tool` message answers one call by its id, so there is nothing to merge it with.
_ROLES = ("user", "assistant", "system", "developer")
# Of an assistant message with one of these, the calls are the meaning.
_CALLS = ("tool_calls", "function_call", "tool_call_id")
_BLANK_LINE = "\n\n"
_DECODER = json.JSONDecoder()


def merge(messages: Sequence[Any]) -> list[Any]:
    """Merge neighbours of one role, in order, where that keeps what they say.

    Neighbours are merged when both are of the user, the assistant, the system or the developer,
    neither calls a tool, and they differ in nothing but their content (a `name`, for example).
    A key that is null or an empty list counts as not there, as client libraries write it.

    Texts are joined by a blank line, content parts stand one after the other with a part that
    holds the blank line between two texts, and a text beside parts becomes a part.

    Args:
        messages: The list of a chat completion request, which may hold anything.

    Returns:
        A new list; messages that were not merged are the very objects given.
    """
    merged: list[Any] = []
    for message in messages:
        if merged and _belong_together(merged[-1], message):
            first = merged[-1]
            content = _joined(first.get("content"), message.get("content"))
            merged[-1] = {**message, **first, "content": content}
        else:
            merged.append(message)
    return merged


def _belong_together(first: Any, second: Any) -> bool:
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return False
    ours, theirs = _said_beside_content(first), _said_beside_content(second)
    return (
        ours == theirs
        and ours.get("role") in _ROLES
        and not any(call in ours for call in _CALLS)
        and _is_content(first.get("content"))
        and _is_content(second.get("content"))
    )


def _said_beside_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in message.items()
        if key != "content" and value is not None and value != []
    }


def _is_content(content: Any) -> bool:
    return content is None or isinstance(content, str | list)


def _joined(first: Any, second: Any) -> Any:
    # None, "" and [] say nothing, so no blank line stands before or after them.
    if not second and first is not None:
        return first
    if not first:
        return second
    if isinstance(first, str) and isinstance(second, str):
        return first + _BLANK_LINE + second
    left, right = _parts(first), _parts(second)
    between = [_text(_BLANK_LINE)] if _is_text(left[-1]) and _is_text(right[0]) else []
    return [*left, *between, *right]


def _parts(content: Any) -> list[Any]:
    return [_text(content)] if isinstance(content, str) else content


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _is_text(part: Any) -> bool:
    # Templates take a bare string among parts for a text too.
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")


def merged_body(body: bytes) -> bytes:
    """A request's JSON with its `messages` merged, every other byte as it was.

    What is no JSON object, has no list of messages or needs no merging comes back untouched: the
    engine is the one to judge it.
    """
    try:
        text = body.decode("utf-8")
        start, end, messages = _messages(text)
        merged = merge(messages)
        if len(merged) == len(messages):
            return body
        written = json.dumps(merged, allow_nan=False, separators=(",", ":"))
        return f"{text[:start]}{written}{text[end:]}".encode()
    except (ValueError, RecursionError):
        return body


def _messages(text: str) -> tuple[int, int, list[Any]]:
    """Where the value of the top-level key `messages` starts and ends, and the value.

    Of several such keys the last counts, as for JSON parsers. ValueError where there is none.
    """
    found: tuple[int, int, list[Any]] | None = None
    at = _expect(text, _blank(text, 0), "{")
    while True:
        key, at = _DECODER.raw_decode(text, _blank(text, at))
        start = _blank(text, _expect(text, _blank(text, at), ":"))
        value, end = _DECODER.raw_decode(text, start)
        if key == "messages":
            found = (start, end, value)
        at = _blank(text, end)
        if text[at : at + 1] != ",":
            break
        at += 1
    _expect(text, at, "}")
    if found is None or not isinstance(found[2], list):
        raise ValueError("no list of messages")
    return found


def _blank(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"no {character} at {at}")
    return at + 1
