"""Messages of one role in a row become one message; nothing else about a request changes.

Some chat templates answer HTTP 400 to two user messages in a row, which agents send. What is
merged here is what mistral_common merges by itself when vLLM serves the same model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.onhost.gateway.wire import json_object

# A `tool` message answers one call by its id, so there is nothing to merge it with.
_ROLES = ("user", "assistant", "system", "developer")
# Of an assistant message with one of these, the calls are the meaning.
_CALLS = ("tool_calls", "function_call", "tool_call_id")
_BLANK_LINE = "\n\n"
#: Messages of a conversation that are merged: far above a day of an agent's, and 0.1 s of one core.
MESSAGES = 20_000


def merge(messages: Sequence[Any]) -> list[Any]:
    """Merge neighbours of one role, in order, where that keeps what they say.

    Neighbours are merged when both are of the user, the assistant, the system or the developer,
    neither calls a tool, and they differ in nothing but their content (a `name`, for example).
    A key that is null or an empty list counts as not there, as client libraries write it.

    Texts are joined by a blank line, content parts stand one after the other with a part that
    holds the blank line between two texts, and a text beside parts becomes a part.

    The list of a request may hold anything. Messages that are not merged are the very objects
    given.
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


def merged_messages(found: Mapping[str, json_object.Member]) -> dict[str, list[Any]] | None:
    """`messages` of a request's members, merged; None where nothing of them is to be merged.

    More than `MESSAGES` are left to the engine as they are.
    """
    messages = found["messages"].value if "messages" in found else None
    if not isinstance(messages, list) or len(messages) > MESSAGES:
        return None
    merged = merge(messages)
    return {"messages": merged} if len(merged) < len(messages) else None
