"""The chat template of the model: what it refuses, the engine refuses in its words."""

from __future__ import annotations

import json
import re
from typing import Any

from .arguments import Serving
from .refused import Refused
from .weights import MissingWeights, snapshot

Json = dict[str, Any]

#: vLLM before its PR 43590 hands `developer` on as it is; the lab's older ones are of March 2026.
_KEEPS_DEVELOPER = ("0.15.", "0.17.", "0.18.")
#: A template that goes through the parts of a content; to others the engines give one text.
_GOES_THROUGH_PARTS = re.compile(r"\bfor\s+\w+\s+in\s+[^%]*content")


class ChatTemplate:
    """A template as transformers renders it, after what an engine does to the messages."""

    def __init__(self, text: str, *, keeps_developer: bool = False) -> None:
        # Only where there is a template: a program of a test that has none has no such package.
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda _: "2026-01-01"
        self._template = environment.from_string(text)
        self._parts = bool(_GOES_THROUGH_PARTS.search(text))
        self._keeps_developer = keeps_developer

    def check(self, messages: list[Json], tools: object) -> None:
        """``Refused`` where the template raises, or cannot be rendered with these."""
        prepared = [self._prepare(message) for message in messages]
        from jinja2 import TemplateError

        words = {"bos_token": "", "eos_token": "", "add_generation_prompt": True}
        try:
            self._template.render(messages=prepared, tools=tools or None, **words)
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise Refused(400, str(error)) from error

    def _prepare(self, message: Json) -> Json:
        """As vLLM 0.33 and SGLang 0.5.23 do: arguments parsed, pictures named, texts joined."""
        found = dict(message)
        if found.get("role") == "developer" and not self._keeps_developer:
            found["role"] = "system"
        content = found.get("content")
        if isinstance(content, list):
            parts = [
                {"type": "image"} if part.get("type") == "image_url" else part for part in content
            ]
            texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
            found["content"] = parts if self._parts else "\n".join(texts)
        if calls := found.get("tool_calls"):
            found["tool_calls"] = [_parse_arguments(call) for call in calls]
        return found


def _parse_arguments(call: Json) -> Json:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}


def _raise(said: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(said)


def of_model(serving: Serving, version: str) -> ChatTemplate | None:
    """The template in the model's folder; None where there is none, or the engine reads none.

    vLLM reads Mistral's own tokenizer, which joins roles itself (article 003).
    """
    if serving.engine == "vllm" and "mistral" in serving.model.lower():
        return None
    try:
        file = snapshot(serving.model, serving.revision) / "chat_template.jinja"
    except MissingWeights:
        return None
    if not file.is_file():
        return None
    keeps = serving.engine == "vllm" and version.startswith(_KEEPS_DEVELOPER)
    return ChatTemplate(file.read_text(encoding="utf-8"), keeps_developer=keeps)
