"""Rewriting of conversations whose shape a chat template refuses; nothing else changes.

Agents send shapes that some templates answer with HTTP 400: two user messages in a row, one right
after a tool's result, a system message in the middle. Each is evened out as the engines' own
libraries do it (mistral_common's joining of roles; vLLM's `inline_system.py`, 2026-11), so that a
conversation grows at its end only and an engine's prefix cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape
from lockstep.onhost.gateway.wire import json_value_replacement
from lockstep.onhost.gateway.wire.gateway_answers import Api

#: `calls`: assistant message with tool calls. `else`: not a message.
Kind = Literal["system", "user", "assistant", "calls", "tool", "else"]
#: Paths with a conversation in their body, and its API.
PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "openai",
    "/tokenize": "openai",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
    "/v1/messages/count_tokens": "anthropic",
}
#: Limit of messages in a conversation that is evened out: far above a day of an agent's. So many
#: short ones took at most 0.5 s of one core (2026-11-28). Longer conversations go to the engine
#: unchanged.
MESSAGES = 20_000
_BLANK_LINE = "\n\n"
# Between a tool's result and a user's picture, for templates that alternate. Mistral's own agent
# puts the same word there (mistral-vibe, `_ensure_assistant_after_tools`, read 2026-11).
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
    item: Any  #: In the API's form.
    #: Index of the message that this is a part of; None for a whole message.
    whole: int | None = None

    @property
    def role(self) -> Any:
        """The role in the item, or None."""
        return self.item.get("role") if isinstance(self.item, Mapping) else None


@dataclass(frozen=True)
class ConversationForm:
    """The form of a conversation in one API."""

    key: str  #: Key of the messages in the body.
    system: str | None  #: Key of the system prompt in the body, if the API has one.
    result: str  #: Key of a tool's result.
    split: Callable[[Sequence[Any]], list[Turn]]
    write: Callable[[Iterable[Turn]], list[Any]]
    texts: tuple[str, str] = ("text", "text")  #: Types of a text, of the user and of the assistant.
    beside: Mapping[str, Any] | None = None  #: Keys that each message has besides.

    def make_message(self, role: str, content: Any) -> dict[str, Any]:
        """Make a message of a role."""
        return {**(self.beside or {}), "role": role, "content": content}

    def make_text_part(self, role: Any, text: str) -> dict[str, str]:
        """Make a text part for a role's message."""
        return {"type": self.texts[role == "assistant"], "text": text}


def rewrite_refused_shapes(
    path: str, members: Mapping[str, json_value_replacement.JsonMember], shapes: Collection[Shape]
) -> tuple[dict[str, Any], list[Shape]]:
    """Replace members of a request that a template or an engine refuses.

    Returns:
        New values by key, `json_value_replacement.GONE` for one to leave out, and the shapes found.
        Both are empty if nothing changes.
    """
    new: dict[str, Any] = {}
    evened_shapes: list[Shape] = []
    if "empty_tools" in shapes and "tools" in members and members["tools"].value == []:
        # A tool choice without tools is refused as well.
        new |= {
            key: json_value_replacement.GONE for key in ("tools", "tool_choice") if key in members
        }
        evened_shapes.append("empty_tools")
    form = _FORMS[PATHS[path]]
    items = members[form.key].value if form.key in members else None
    if isinstance(items, list) and len(items) <= MESSAGES:
        talk = _Conversation(form, form.split(items), members.get(form.system or ""))
        if talk_shapes := talk.rewrite_shapes(shapes):
            new |= {form.key: form.write(talk.turns)} | talk.system
            evened_shapes += talk_shapes
    return new, evened_shapes


class _Conversation:
    """A conversation while it is evened out."""

    def __init__(
        self,
        form: ConversationForm,
        turns: list[Turn],
        system: json_value_replacement.JsonMember | None,
    ) -> None:
        self._form = form
        self._system = system.value if system else None
        self.turns = turns
        #: The body's own system prompt, if it was changed.
        self.system: dict[str, Any] = {}

    def rewrite_shapes(self, shapes: Collection[Shape]) -> list[Shape]:
        """Even out these shapes; return those that were found."""
        # Later steps see what earlier ones leave behind.
        steps: dict[Shape, Callable[[], None]] = {
            "developer": self._rename_developer_role,
            "late_system": self._settle_system_messages,
            "tool_picture": self._move_pictures_from_tool_results,
            "same_role": self._join_turns_of_one_role,
            "user_after_tool": lambda: self._settle_user_words_after_tool("same_role" in shapes),
        }
        evened_shapes: list[Shape] = []
        for shape, step in steps.items():
            previous_turns = self.turns
            if shape in shapes:
                step()
            # A step makes a new list only if it finds something.
            if self.turns is not previous_turns:
                evened_shapes.append(shape)
        return evened_shapes

    def _set_turns_if_changed(self, turns: list[Turn]) -> None:
        is_same = len(turns) == len(self.turns) and all(map(_is_unchanged_turn, turns, self.turns))
        self.turns = self.turns if is_same else turns

    def _rename_developer_role(self) -> None:
        self._set_turns_if_changed([_turn_without_developer_role(turn) for turn in self.turns])

    def _settle_system_messages(self) -> None:
        """Join leading system words, and give later ones to the user.

        They never come between calls and their results.
        """
        lead = next((i for i, turn in enumerate(self.turns) if turn.kind != "system"), None)
        first, later_turns = self.turns[:lead], self.turns[lead:] if lead is not None else []
        if (
            first
            and later_turns
            and self._system
            and (prompt := self._extended_system_prompt(first)) is not None
        ):
            self.system, first = prompt, []
        out = [self._joined_turn(*first)] if len(first) > 1 else [*first]
        waiting: list[Any] = []
        for turn in (*later_turns, None):
            if turn is not None and turn.kind == "system":
                waiting.append(turn.item.get("content"))
                continue
            if waiting and (turn is None or turn.kind != "tool"):
                self._append_user_words(out, *waiting)
                waiting = []
            out += [turn] if turn else []
        self._set_turns_if_changed(out)

    def _extended_system_prompt(self, turns: Sequence[Turn]) -> dict[str, Any] | None:
        """Return a system prompt extended by these turns' texts; None if they are not all text."""
        words = [_text_of_content(turn.item.get("content")) for turn in turns]
        if None in words or not isinstance(self._system, str | list):
            return None
        prompt_text = _BLANK_LINE.join(filter(None, words))
        return {str(self._form.system): self._joined_content("system", self._system, prompt_text)}

    def _append_user_words(self, out: list[Turn], *contents: Any) -> None:
        """Append words of the user; behind a tool's result, so that no turn begins there.

        Templates keep a model's reasoning only since the last user turn.
        """
        words = [_text_of_content(content) for content in contents]
        if None in words or not self._ends_with_result(out):
            content = self._joined_content("user", *contents)
            out.append(Turn("user", self._form.make_message("user", content)))
            return
        key, last = self._form.result, out[-1]
        content = self._joined_content("user", last.item.get(key), *words)
        out[-1] = replace(last, item={**last.item, key: content})

    def _ends_with_result(self, out: Sequence[Turn]) -> bool:
        """Tell whether the last turn is a tool's result that words can be appended to."""
        if not out or out[-1].kind != "tool":
            return False
        return _is_content(out[-1].item.get(self._form.result))

    def _move_pictures_from_tool_results(self) -> None:
        out, pictures = list[Turn](), list[Any]()
        for turn in (*self.turns, None):
            if pictures and (turn is None or turn.kind != "tool"):
                parts = [self._form.make_text_part("user", _PICTURES), *pictures]
                out.append(Turn("user", self._form.make_message("user", parts)))
                pictures = []
            if turn is None:
                break
            content = turn.item.get(self._form.result) if turn.kind == "tool" else None
            if isinstance(content, list) and any(map(_is_picture, content)):
                pictures += filter(_is_picture, content)
                other_parts = [part for part in content if not _is_picture(part)]
                words = _text_of_content(other_parts)
                new_content = other_parts if words is None else words or _FOLLOWS
                turn = replace(turn, item={**turn.item, self._form.result: new_content})
            out.append(turn)
        self._set_turns_if_changed(out)

    def _join_turns_of_one_role(self) -> None:
        """Join adjacent turns, and the assistant's words with its calls if an answer follows."""
        out: list[Turn] = []
        spoken_at: int | None = None  # Index of the assistant's words that no user has answered.
        for turns in _runs_of_turns(self.turns):
            turn = self._joined_turn(*turns) if len(turns) > 1 else turns[0]
            if turn.kind == "assistant":
                if spoken_at is not None and spoken_at + 1 < len(out):
                    spoken_turns = out[spoken_at : spoken_at + 2]
                    if _is_words_before_calls(*spoken_turns):
                        out[spoken_at : spoken_at + 2] = [self._joined_turn(*spoken_turns)]
                spoken_at = len(out)
            elif turn.kind == "user":
                spoken_at = None
            out.append(turn)
        self._set_turns_if_changed(out)

    def _settle_user_words_after_tool(self, alternates: bool) -> None:
        """Put a user's words behind the result before them, or a word of the assistant between.

        With `alternates`, words of the assistant beside its calls count as that word.
        """
        out, speaker, behind = list[Turn](), "", list[Any]()
        for turn in (*self.turns, None):
            previous_kind = out[-1].kind if out else None
            apart = previous_kind in ("tool", "calls") and not (
                alternates and speaker == "assistant"
            )
            if turn and turn.kind == "user" and apart and self._ends_with_result(out):
                content = turn.item.get("content")
                if _text_of_content(content) is not None:
                    behind.append(content)
                    continue
            if behind:
                self._append_user_words(out, *behind)
                behind = []
            if turn is None:
                break
            if turn.kind == "user" and apart:
                out.append(Turn("assistant", self._form.make_message("assistant", _BETWEEN)))
            speaker = turn.kind if turn.kind in ("user", "assistant") else speaker
            out.append(turn)
        self._set_turns_if_changed(out)

    def _joined_turn(self, *turns: Turn) -> Turn:
        first, last = turns[0], turns[-1]
        content = self._joined_content(first.role, *(turn.item.get("content") for turn in turns))
        item: dict[str, Any] = {}
        for turn in turns:
            item |= turn.item
        return Turn(last.kind, {**item, "role": first.role, "content": content}, first.whole)

    def _joined_content(self, role: Any, *contents: Any) -> Any:
        """Join contents: texts with a blank line between them, parts one after another."""
        # None, "" and [] have no words, so no blank line stands before or after them.
        full_contents = [content for content in contents if content]
        if not full_contents:
            return next((content for content in contents if content is not None), None)
        runs = [
            [_BLANK_LINE.join(run)] if plain else list(run)
            for plain, run in groupby(full_contents, lambda content: isinstance(content, str))
        ]
        first, *more = [content for run in runs for content in run]
        if not more:
            return first
        parts: list[Any] = []
        for content in (first, *more):
            new_parts = (
                [self._form.make_text_part(role, content)] if isinstance(content, str) else content
            )
            if parts and _is_text(parts[-1]) and _is_text(new_parts[0]):
                parts.append(self._form.make_text_part(role, _BLANK_LINE))
            parts += new_parts
        return parts


def _is_unchanged_turn(first_turn: Turn, second_turn: Turn) -> bool:
    return first_turn is second_turn


def _turn_without_developer_role(turn: Turn) -> Turn:
    if turn.role != "developer":
        return turn
    return replace(turn, item={**turn.item, "role": "system"})


def _runs_of_turns(turns: Iterable[Turn]) -> list[list[Turn]]:
    """Group turns into runs that belong together."""
    runs: list[list[Turn]] = []
    for turn in turns:
        if runs and _belong_together(runs[-1][0], turn):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return runs


def _belong_together(first: Turn, second: Turn) -> bool:
    """Tell whether two turns differ in nothing but their content, and have no calls."""
    if first.kind != second.kind or first.kind not in ("system", "user", "assistant"):
        return False
    beside = _said_beside_content(first.item)
    has_calls = any(call in beside for call in _CALLS)
    return beside == _said_beside_content(second.item) and not has_calls


def _is_words_before_calls(spoken_turn: Turn, calls: Turn) -> bool:
    """Tell whether two turns are the assistant's words and calls, equal in all else."""
    if calls.kind != "calls" or calls.role != "assistant":
        return False
    beside = _said_beside_content(calls.item)
    return _said_beside_content(spoken_turn.item) == {
        key: value for key, value in beside.items() if key not in _CALLS
    }


def _said_beside_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in message.items()
        # Items of the Responses API have a name and a state of their own.
        if key not in ("content", "type", "id", "status")
        # Client libraries write absent keys as null or empty.
        and value is not None
        and value != []
    }


def _is_content(content: Any) -> bool:
    return content is None or isinstance(content, str | list)


def _text_of_content(content: Any) -> str | None:
    """Return a content's text; None if it has more than text."""
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


def _kind_of_message(item: Any) -> Kind:
    """Return the kind of a message, by its role and its calls."""
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


def _parse_chat_turns(messages: Sequence[Any]) -> list[Turn]:
    return [Turn(_kind_of_message(message), message) for message in messages]


def _parse_responses_turns(items: Sequence[Any]) -> list[Turn]:
    turns: list[Turn] = []
    for item in items:
        item_type = (item.get("type") or "message") if isinstance(item, Mapping) else None
        kind = _kind_of_message(item) if item_type == "message" else "else"
        if isinstance(item_type, str) and item_type.endswith("_call_output"):
            kind = "tool"
        elif isinstance(item_type, str) and item_type.endswith("_call"):
            kind = "calls"
            if turns and turns[-1].kind == "assistant":
                # Engines make one message of the words and the calls.
                turns[-1] = replace(turns[-1], kind="calls")
        turns.append(Turn(kind, item))
    return turns


def _parse_anthropic_turns(messages: Sequence[Any]) -> list[Turn]:
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        kind, content = _kind_of_message(message), None
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
        if other_blocks := [block for block in blocks if not _has_type(block, "tool_result")]:
            turns.append(Turn("user", {**message, "content": other_blocks}, place))
    return turns


def _anthropic_messages_of(turns: Iterable[Turn]) -> list[Any]:
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


def _items_of_turns(turns: Iterable[Turn]) -> list[Any]:
    return [turn.item for turn in turns]


_FORMS: Mapping[Api, ConversationForm] = {
    "openai": ConversationForm("messages", None, "content", _parse_chat_turns, _items_of_turns),
    "responses": ConversationForm(
        *("input", "instructions", "output", _parse_responses_turns, _items_of_turns),
        texts=("input_text", "output_text"),
        beside={"type": "message"},
    ),
    "anthropic": ConversationForm(
        "messages", "system", "content", _parse_anthropic_turns, _anthropic_messages_of
    ),
}
