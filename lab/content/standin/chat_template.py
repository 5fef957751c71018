"""The chat template of the model: the engine refuses what the template refuses, in its words."""

from __future__ import annotations

import json
import re
from typing import Any

from .arguments import Serving
from .refusals import StandinRefusal
from .weights import MissingWeights, snapshot

Json = dict[str, Any]

#: vLLM before its PR 43590 passes `developer` on unchanged; the lab's older vLLM is of March 2026.
_KEEPS_DEVELOPER = ("0.15.", "0.17.", "0.18.")
#: A template that loops over the parts of a content; other templates get one text.
_GOES_THROUGH_PARTS = re.compile(r"\bfor\s+\w+\s+in\s+[^%]*content")


class ChatTemplate:
    """A template as transformers renders it, after what an engine does to the messages."""

    def __init__(self, text: str, *, keeps_developer: bool = False) -> None:
        # Imported only with a template: a test's program without one lacks this package.
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
        """Raise ``Refused`` when the template raises, or cannot render these messages."""
        prepared_messages = [self._prepare(message) for message in messages]
        from jinja2 import TemplateError

        words = {"bos_token": "", "eos_token": "", "add_generation_prompt": True}
        try:
            self._template.render(messages=prepared_messages, tools=tools or None, **words)
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise StandinRefusal(400, str(error)) from error

    def _prepare(self, message: Json) -> Json:
        """Parse arguments, name pictures and join texts as vLLM 0.33 and SGLang 0.5.23 do."""
        prepared_message = dict(message)
        if prepared_message.get("role") == "developer" and not self._keeps_developer:
            prepared_message["role"] = "system"
        content = prepared_message.get("content")
        if isinstance(content, list):
            parts = [
                {"type": "image"} if part.get("type") == "image_url" else part for part in content
            ]
            texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
            prepared_message["content"] = parts if self._parts else "\n".join(texts)
        if calls := prepared_message.get("tool_calls"):
            prepared_message["tool_calls"] = [_parse_arguments(call) for call in calls]
        return prepared_message


def _parse_arguments(call: Json) -> Json:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}


def _raise(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


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
