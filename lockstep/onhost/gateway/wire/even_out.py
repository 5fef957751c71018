"""Conversations are evened out where a chat template refuses their shape; nothing else changes.

Agents send what some templates answer with HTTP 400: two user messages in a row, one right after a
tool's result, a system message in the middle. How each is evened out is what the engines' own
libraries do where they do it (mistral_common's joining of roles; vLLM's `inline_system.py`,
2026-11), so that a conversation grows at its end only and an engine's prefix cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway.wire import json_object
from lockstep.onhost.gateway.wire.answers import Api

#: `calls`: of the assistant, with calls of tools. `else`: what is no message.
Kind = Literal["system", "user", "assistant", "calls", "tool", "else"]
#: Paths with a conversation in their body, and whose form it has.
PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "openai",
    "/tokenize": "openai",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
    "/v1/messages/count_tokens": "anthropic",
}
#: Messages of a conversation that are evened out: far above a day of an agent's, and at most 0.5 s
#: of one core (2026-11-28). More are the engine's to judge, as they are.
MESSAGES = 20_000
_BLANK_LINE = "\n\n"
# Between a tool's result and a picture of the user's, for templates that alternate. Mistral's own
# agent puts the same word there (mistral-vibe, `_ensure_assistant_after_tools`, read 2026-11).
_BETWEEN = "Understood."
_PICTURES, _FOLLOWS = "Pictures of the tool's result:", "(a picture, which follows)"
_SYSTEM = ("system", "developer")
_CALLS = ("tool_calls", "function_call", "tool_call_id")
_PICTURE_TYPES = ("image_url", "image", "input_image")
_TEXT_TYPES = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class Turn:
    """One message, or one part of it that engines make a message of."""

    kind: Kind
    item: Any  #: As the API has it.
    #: Place of the message that it is a part of; None: it is a message.
    whole: int | None = None

    @property
    def role(self) -> Any:
        """The role that is written there; None: none is."""
        return self.item.get("role") if isinstance(self.item, Mapping) else None


@dataclass(frozen=True)
class Form:
    """How an API writes a conversation."""

    key: str  #: Of the body.
    system: str | None  #: Key of the body with the system's words, if there is one.
    result: str  #: Key of a tool's result.
    split: Callable[[Sequence[Any]], list[Turn]]
    write: Callable[[Iterable[Turn]], list[Any]]
    texts: tuple[str, str] = ("text", "text")  #: Type of a text of the user's, of the assistant's.
    beside: Mapping[str, Any] | None = None  #: What stands in each message.

    def message(self, role: str, content: Any) -> dict[str, Any]:
        """A message of a role."""
        return {**(self.beside or {}), "role": role, "content": content}

    def text(self, role: Any, text: str) -> dict[str, str]:
        """A text as a part of a role's message."""
        return {"type": self.texts[role == "assistant"], "text": text}


def even_out(
    path: str, found: Mapping[str, json_object.Member], shapes: Collection[Shape]
) -> tuple[dict[str, Any], list[Shape]]:
    """Replace what a template or an engine refuses of a request's members.

    Returns:
        New values by key, `json_object.GONE` for one that is left out, and the shapes that were
        found. Both are empty where nothing is to be changed.
    """
    new: dict[str, Any] = {}
    there: list[Shape] = []
    if "empty_tools" in shapes and "tools" in found and found["tools"].value == []:
        # A choice among no tools is refused as well.
        new |= {key: json_object.GONE for key in ("tools", "tool_choice") if key in found}
        there.append("empty_tools")
    form = _FORMS[PATHS[path]]
    items = found[form.key].value if form.key in found else None
    if isinstance(items, list) and len(items) <= MESSAGES:
        talk = _Talk(form, form.split(items), found.get(form.system or ""))
        if here := talk.even_out(shapes):
            new |= {form.key: form.write(talk.turns)} | talk.system
            there += here
    return new, there


class _Talk:
    """A conversation while it is evened out."""

    def __init__(self, form: Form, turns: list[Turn], system: json_object.Member | None) -> None:
        self._form = form
        self._system = system.value if system else None
        self.turns = turns
        #: The body's own system prompt, where it was changed.
        self.system: dict[str, Any] = {}

    def even_out(self, shapes: Collection[Shape]) -> list[Shape]:
        """Even out these shapes; gives those that were there."""
        # What one leaves behind, the next ones see.
        steps: dict[Shape, Callable[[], None]] = {
            "developer": self._rename_developer,
            "late_system": self._move_system,
            "tool_picture": self._take_out_pictures,
            "same_role": self._join_roles,
            "user_after_tool": lambda: self._part_users_from_tools("same_role" in shapes),
        }
        there: list[Shape] = []
        for shape, step in steps.items():
            before = self.turns
            if shape in shapes:
                step()
            # Each step makes a new list where it finds something, else it keeps this one.
            if self.turns is not before:
                there.append(shape)
        return there

    def _take(self, turns: list[Turn]) -> None:
        same = len(turns) == len(self.turns) and all(map(_is, turns, self.turns))
        self.turns = self.turns if same else turns

    def _rename_developer(self) -> None:
        self._take([_as_system(turn) for turn in self.turns])

    def _move_system(self) -> None:
        """Join what leads; later words become the user's, never between calls and their results."""
        lead = next((i for i, turn in enumerate(self.turns) if turn.kind != "system"), None)
        first, rest = self.turns[:lead], self.turns[lead:] if lead is not None else []
        if first and rest and self._system and (joined := self._to_prompt(first)) is not None:
            self.system, first = joined, []
        out = [self._join(*first)] if len(first) > 1 else [*first]
        waiting: list[Any] = []
        for turn in (*rest, None):
            if turn is not None and turn.kind == "system":
                waiting.append(turn.item.get("content"))
                continue
            if waiting and (turn is None or turn.kind != "tool"):
                self._say(out, *waiting)
                waiting = []
            out += [turn] if turn else []
        self._take(out)

    def _to_prompt(self, turns: Sequence[Turn]) -> dict[str, Any] | None:
        """The body's own system prompt with the words of these; None: they are no texts."""
        words = [_words(turn.item.get("content")) for turn in turns]
        if None in words or not isinstance(self._system, str | list):
            return None
        said = _BLANK_LINE.join(filter(None, words))
        return {str(self._form.system): self._content("system", self._system, said)}

    def _say(self, out: list[Turn], *contents: Any) -> None:
        """Have the user say something next: behind a tool's result, so that no turn begins there.

        Templates keep a model's reasoning only since the last user's turn.
        """
        words = [_words(content) for content in contents]
        if None in words or not self._ends_with_result(out):
            content = self._content("user", *contents)
            out.append(Turn("user", self._form.message("user", content)))
            return
        key, last = self._form.result, out[-1]
        content = self._content("user", last.item.get(key), *words)
        out[-1] = replace(last, item={**last.item, key: content})

    def _ends_with_result(self, out: Sequence[Turn]) -> bool:
        """Whether a tool's result comes last that words can be put behind."""
        if not out or out[-1].kind != "tool":
            return False
        return _is_content(out[-1].item.get(self._form.result))

    def _take_out_pictures(self) -> None:
        out, pictures = list[Turn](), list[Any]()
        for turn in (*self.turns, None):
            if pictures and (turn is None or turn.kind != "tool"):
                parts = [self._form.text("user", _PICTURES), *pictures]
                out.append(Turn("user", self._form.message("user", parts)))
                pictures = []
            if turn is None:
                break
            content = turn.item.get(self._form.result) if turn.kind == "tool" else None
            if isinstance(content, list) and any(map(_is_picture, content)):
                pictures += filter(_is_picture, content)
                left = [part for part in content if not _is_picture(part)]
                words = _words(left)
                said = left if words is None else words or _FOLLOWS
                turn = replace(turn, item={**turn.item, self._form.result: said})
            out.append(turn)
        self._take(out)

    def _join_roles(self) -> None:
        """Join neighbours, and words of the assistant's with its calls where an answer follows."""
        out: list[Turn] = []
        spoken: int | None = None  # Place of the assistant's words that no user has answered.
        for same in _neighbours(self.turns):
            turn = self._join(*same) if len(same) > 1 else same[0]
            if turn.kind == "assistant":
                if spoken is not None and spoken + 1 < len(out):
                    said = out[spoken : spoken + 2]
                    if _is_call_of(*said):
                        out[spoken : spoken + 2] = [self._join(*said)]
                spoken = len(out)
            elif turn.kind == "user":
                spoken = None
            out.append(turn)
        self._take(out)

    def _part_users_from_tools(self, alternates: bool) -> None:
        """Put a user's words behind the result before them, or a word of the assistant's between.

        `alternates`: one that the assistant has spoken before, beside its calls, may stand.
        """
        out, spoken, behind = list[Turn](), "", list[Any]()
        for turn in (*self.turns, None):
            before = out[-1].kind if out else None
            apart = before in ("tool", "calls") and not (alternates and spoken == "assistant")
            if turn and turn.kind == "user" and apart and self._ends_with_result(out):
                content = turn.item.get("content")
                if _words(content) is not None:
                    behind.append(content)
                    continue
            if behind:
                self._say(out, *behind)
                behind = []
            if turn is None:
                break
            if turn.kind == "user" and apart:
                out.append(Turn("assistant", self._form.message("assistant", _BETWEEN)))
            spoken = turn.kind if turn.kind in ("user", "assistant") else spoken
            out.append(turn)
        self._take(out)

    def _join(self, *turns: Turn) -> Turn:
        first, last = turns[0], turns[-1]
        content = self._content(first.role, *(turn.item.get("content") for turn in turns))
        item: dict[str, Any] = {}
        for turn in turns:
            item |= turn.item
        return Turn(last.kind, {**item, "role": first.role, "content": content}, first.whole)

    def _content(self, role: Any, *contents: Any) -> Any:
        """One content of several: texts with a blank line between them, parts one after another."""
        # None, "" and [] say nothing, so no blank line stands before or after them.
        said = [content for content in contents if content]
        if not said:
            return next((content for content in contents if content is not None), None)
        runs = [
            [_BLANK_LINE.join(run)] if plain else list(run)
            for plain, run in groupby(said, lambda content: isinstance(content, str))
        ]
        first, *more = [content for run in runs for content in run]
        if not more:
            return first
        parts: list[Any] = []
        for content in (first, *more):
            added = [self._form.text(role, content)] if isinstance(content, str) else content
            if parts and _is_text(parts[-1]) and _is_text(added[0]):
                parts.append(self._form.text(role, _BLANK_LINE))
            parts += added
        return parts


def _is(one: Turn, other: Turn) -> bool:
    return one is other


def _as_system(turn: Turn) -> Turn:
    if turn.role != "developer":
        return turn
    return replace(turn, item={**turn.item, "role": "system"})


def _neighbours(turns: Iterable[Turn]) -> list[list[Turn]]:
    """Turns in runs of those that belong together."""
    runs: list[list[Turn]] = []
    for turn in turns:
        if runs and _belong_together(runs[-1][0], turn):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return runs


def _belong_together(first: Turn, second: Turn) -> bool:
    """Whether they differ in nothing but their content, and call nothing."""
    if first.kind != second.kind or first.kind not in ("system", "user", "assistant"):
        return False
    beside = _said_beside_content(first.item)
    called = any(call in beside for call in _CALLS)
    return beside == _said_beside_content(second.item) and not called


def _is_call_of(said: Turn, calls: Turn) -> bool:
    """Whether these are the assistant's words and its calls, and differ in nothing else."""
    if calls.kind != "calls" or calls.role != "assistant":
        return False
    beside = _said_beside_content(calls.item)
    return _said_beside_content(said.item) == {
        key: value for key, value in beside.items() if key not in _CALLS
    }


def _said_beside_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in message.items()
        # Of an item of Responses, which has a name and a state of its own.
        if key not in ("content", "type", "id", "status")
        # A key that is null or empty counts as not there, as client libraries write it.
        and value is not None
        and value != []
    }


def _is_content(content: Any) -> bool:
    return content is None or isinstance(content, str | list)


def _words(content: Any) -> str | None:
    """A content's text; None where it is more than text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(map(_is_text, content)):
        return None
    texts = (part if isinstance(part, str) else part["text"] for part in content)
    return _BLANK_LINE.join(text for text in texts if text.strip())


def _is_text(part: Any) -> bool:
    # Templates take a bare string among parts for a text too.
    if isinstance(part, str):
        return True
    if not isinstance(part, Mapping) or part.get("type") not in _TEXT_TYPES:
        return False
    return isinstance(part.get("text"), str)


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _PICTURE_TYPES


def _kind(item: Any) -> Kind:
    """What a message is, by its role and its calls."""
    if not isinstance(item, Mapping) or not _is_content(item.get("content")):
        return "else"
    role = item.get("role")
    if role in _SYSTEM:
        return "system"
    if role == "user":
        return "user"
    if role == "assistant":
        return "calls" if any(item.get(call) for call in _CALLS) else "assistant"
    return "tool" if role in ("tool", "function") else "else"


def _of_chat(messages: Sequence[Any]) -> list[Turn]:
    return [Turn(_kind(message), message) for message in messages]


def _of_responses(items: Sequence[Any]) -> list[Turn]:
    turns: list[Turn] = []
    for item in items:
        said = (item.get("type") or "message") if isinstance(item, Mapping) else None
        kind = _kind(item) if said == "message" else "else"
        if isinstance(said, str) and said.endswith("_call_output"):
            kind = "tool"
        elif isinstance(said, str) and said.endswith("_call"):
            kind = "calls"
            if turns and turns[-1].kind == "assistant":
                # Engines make one message of what is said and what is called.
                turns[-1] = replace(turns[-1], kind="calls")
        turns.append(Turn(kind, item))
    return turns


def _of_anthropic(messages: Sequence[Any]) -> list[Turn]:
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        kind, content = _kind(message), None
        if isinstance(message, Mapping):
            content = message.get("content")
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if _has_type(block, "tool_result")]
        if kind == "assistant" and any(_has_type(block, "tool_use") for block in blocks):
            kind = "calls"
        if kind != "user" or not results:
            turns.append(Turn(kind, message))
            continue
        # Engines make a message of each result, and one of the rest.
        turns += [Turn("tool", block, place) for block in results]
        if rest := [block for block in blocks if not _has_type(block, "tool_result")]:
            turns.append(Turn("user", {**message, "content": rest}, place))
    return turns


def _to_anthropic(turns: Iterable[Turn]) -> list[Any]:
    messages: list[Any] = []
    last: int | None = None
    for turn in turns:
        blocks = [turn.item] if turn.kind == "tool" else None
        if turn.whole is not None and turn.whole == last:
            more = blocks or turn.item["content"]
            messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *more]}
        else:
            messages.append({"role": "user", "content": blocks} if blocks else turn.item)
        last = turn.whole
    return messages


def _has_type(block: Any, name: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == name


def _items(turns: Iterable[Turn]) -> list[Any]:
    return [turn.item for turn in turns]


_FORMS: Mapping[Api, Form] = {
    "openai": Form("messages", None, "content", _of_chat, _items),
    "responses": Form(
        *("input", "instructions", "output", _of_responses, _items),
        texts=("input_text", "output_text"),
        beside={"type": "message"},
    ),
    "anthropic": Form("messages", "system", "content", _of_anthropic, _to_anthropic),
}
