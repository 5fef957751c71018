"""The shapes of a conversation that a chat template refuses, found by rendering it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES, TemplateShape

TEKKEN = "tekken.json"  #: Mistral's own tokenizer, which needs no template.
#: Files that may hold a template; the first one that exists counts.
FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json", TEKKEN)
# Shapes that mistral_common, the library of that tokenizer, refuses: it joins messages of one role
# by itself (`_validate_message_order` of 1.8, read 2026-11).
_OF_MISTRAL_COMMON: tuple[TemplateShape, ...] = (
    *("user_after_tool", "late_system"),
    *("developer", "tool_picture"),
)
Messages = Sequence[Mapping[str, Any]]


def _message(role: str, content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


_CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": {}}}
_CALLED = [_message("user"), _message("assistant", "", tool_calls=[_CALL])]
_RESULT = _message("tool", tool_call_id=_CALL["id"], name="look")
_ADDRESS = "https://example.com/a.png"
_PICTURE = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": _ADDRESS}}]
# A conversation that most templates take, and the same with the shape in it.
_SYSTEM = [_message("system"), _message("user")]
_TRIED: dict[TemplateShape, tuple[Messages, Messages]] = {
    "same_role": ([_message("user")], [_message("user"), _message("user")]),
    "user_after_tool": ([*_CALLED, _RESULT], [*_CALLED, _RESULT, _message("user")]),
    "late_system": (_SYSTEM, [_message("system"), *_SYSTEM]),
    "developer": ([_message("user")], [_message("developer"), _message("user")]),
    "tool_picture": ([_message("user", _PICTURE)], [*_CALLED, {**_RESULT, "content": _PICTURE}]),
}


def of_repository(
    read: Callable[[str], bytes | None],
) -> tuple[bool, tuple[TemplateShape, ...] | None]:
    """Tell whether a repository has a chat template, and return the shapes that this refuses.

    Args:
        read: Returns a file's content; None where it is absent.
    """
    for name in FILES:
        content = read(name)
        if content is None:
            continue
        if name == TEKKEN:
            return True, _OF_MISTRAL_COMMON
        text = (
            content.decode("utf-8", "replace")
            if name.endswith(".jinja")
            else _default_template(content)
        )
        if text:
            return True, refused_shapes(text)
    return False, None


def _default_template(content: bytes) -> str | None:
    """Return the template in a JSON file; of several with names (old transformers), the default."""
    try:
        template = json.loads(content).get("chat_template")
        if isinstance(template, list):
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return template if isinstance(template, str) else None


def refused_shapes(text: str) -> tuple[TemplateShape, ...] | None:
    """Return the shapes that a template refuses, or drops; None: it cannot be rendered here.

    Args:
        text: The template, as chat_template.jinja or tokenizer_config.json holds it.
    """
    # This tag exists only in transformers, and marks the text that a training learns from.
    text = re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", text)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value)

    def takes(messages: Messages) -> bool:
        try:
            rendered_text = environment.from_string(text).render(
                messages=messages,
                tools=None,
                add_generation_prompt=messages[-1]["role"] != "assistant",
                bos_token="",
                eos_token="",
                raise_exception=_raise,
                strftime_now=lambda _: "2026-01-01",
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError):
            return False
        # A template that makes text of a list has no words for a picture.
        return _ADDRESS not in rendered_text

    if not takes([_message("user")]):
        return None
    return tuple(
        shape for shape in SHAPES if takes(_TRIED[shape][0]) and not takes(_TRIED[shape][1])
    )


def _raise(message: str) -> None:
    raise TemplateError(message)
