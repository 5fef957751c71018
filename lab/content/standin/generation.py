"""Turns a request into tokens at a steady rate; knows the rules of the chat templates."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import corruption
from .arguments import Serving
from .chat_template import ChatTemplate
from .knobs import Knobs
from .memory import generating
from .metrics import Counters
from .refused import Refused

Json = dict[str, Any]

#: One word is one token. A request without a limit gets this many.
WORDS = (
    (
        "The stand-in engine has no model and answers with the words it has. "
        "It counts tokens as the real one does and takes its time over each of them.\n"
    )
    .replace(" ", " \0")
    .split("\0")
)
NATURAL_LENGTH = 32
#: From this word on an answer depends on its prompt, as a model's does.
SAME_WORDS = 8
THOUGHTS = "Let me see what was asked. ".replace(" ", " \0").split("\0")[:-1]
#: Tokens that a draft proposes per step.
DRAFTED = 3
#: What the prompt says already is drafted, and comes so many times as fast.
SPOKEN_BEFORE = 20


@dataclass(frozen=True)
class Piece:
    """One generated token: its text, and whether it belongs to the thoughts."""

    text: str
    thought: bool = False


@dataclass(frozen=True)
class Job:
    """A checked request. ``limit`` is the number of tokens at which it ends.

    ``turn`` is where in the words an answer goes on that depends on its prompt; ``script`` are the
    tokens of an answer that the prompt leaves no choice about, a tool call's arguments too.
    """

    prompt_tokens: int
    limit: int
    reason: str
    thinking: bool
    turn: int
    stream: bool
    usage_in_stream: bool
    usage_in_each: bool
    tool: str | None
    script: tuple[str, ...]
    logprobs: bool


def check(
    request: Json, serving: Serving, knobs: Knobs, template: ChatTemplate | None, *, chat: bool
) -> Job:
    """Read a request body. ``Refused`` with what the real engine answers to a wrong one."""
    model = request.get("model")
    if serving.engine == "vllm" and model is not None and model not in serving.names:
        raise Refused(404, f"The model `{model}` does not exist.", "NotFoundError")
    if chat:
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused(400, "messages: Field required")
        tools = request.get("tools")
        if tools == [] and serving.engine == "vllm":
            # vLLM 0.33, chat_completion/protocol.py.
            raise Refused(400, "`tools` must not be an empty array")
        if template and knobs.check_template:
            template.check(messages, tools)
        text = " ".join(_text(message, serving) for message in messages)
    else:
        text = str(request.get("prompt", ""))
    options_of_template = request.get("chat_template_kwargs") or {}
    if options_of_template and knobs.refuse_template:
        raise Refused(400, "chat_template is not supported for Mistral tokenizers.")
    if request.get("logprobs") and knobs.refuse_logprobs:
        raise Refused(400, "logprobs are not supported")
    tool, script = (None, ()) if request.get("ignore_eos") else _script(request, text, chat)
    asked = request.get("max_completion_tokens") or request.get("max_tokens")
    thinking = chat and bool(options_of_template.get("enable_thinking", serving.thinking))
    thoughts = len(THOUGHTS) if thinking or knobs.always_thinks else 0
    natural = thoughts + len(script) if script else NATURAL_LENGTH
    if request.get("ignore_eos") or knobs.corruption in corruption.ENDLESS:
        natural = 10**6
    if knobs.corruption == "truncated":
        natural = thoughts + len(script) // 2 if script else natural
    limit = min(int(asked), natural) if asked else min(natural, 1024)
    prompt_tokens = 4 + len(text.split())
    if prompt_tokens + limit > serving.context:
        raise Refused(400, f"This model's maximum context length is {serving.context} tokens.")
    options = request.get("stream_options") or {}
    return Job(
        prompt_tokens=prompt_tokens,
        limit=limit,
        reason="length" if asked and int(asked) <= limit else "stop",
        thinking=bool(thoughts),
        turn=zlib.crc32(text.encode()) % len(WORDS),
        stream=bool(request.get("stream")),
        usage_in_stream=bool(options.get("include_usage")),
        usage_in_each=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        tool=tool,
        script=script,
        logprobs=bool(request.get("logprobs")),
    )


def _script(request: Json, text: str, chat: bool) -> tuple[str | None, tuple[str, ...]]:
    """The tool that is called, and the tokens of its arguments or of an answer without choice."""
    tool, arguments = _tool_call(request, text) if chat else (None, "")
    if tool:
        return tool, tuple(_TOKEN.findall(arguments))
    count = re.search(r"\b[Cc]ount from (\d+) to (\d+)\b", text)
    if count:
        numbers = range(int(count[1]), int(count[2]) + 1)
        return None, tuple(_TOKEN.findall(" ".join(map(str, numbers))))
    repeat = re.search(r"Repeat these .*?\n\n(.+)", text, re.DOTALL)
    return None, tuple(_TOKEN.findall(repeat[1])) if repeat else ()


#: As tokenizers cut what is in no dictionary: each digit is one, letters go together in pairs.
_TOKEN = re.compile(r"\d|[^\W\d]{1,2}|\W")


def _text(message: Json, serving: Serving) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text" and serving.text_only:
            raise Refused(400, f"At most 0 image(s) may be provided: {part.get('type')}")
    return " ".join(str(part.get("text", "")) for part in content)


def _tool_call(request: Json, text: str) -> tuple[str | None, str]:
    """A function with a value for each required parameter: the one that is wished, or the first.

    The value stands in the text beside the parameter's name, or is an example. An agent has none
    called unasked, and one only.
    """
    functions = [tool["function"] for tool in request.get("tools") or [] if "function" in tool]
    roles = [message.get("role") for message in request["messages"]]
    wish = re.search(r"\b[Uu]se the tool (\w+)", text)
    if request.get("agent") or wish:
        named = [each for each in functions if wish and each["name"] == wish[1]]
        functions = [] if "tool" in roles else named
    if not functions or request.get("tool_choice") == "none" or roles[-1] == "tool":
        return None, ""
    function = functions[0]
    parameters = function.get("parameters") or {}
    properties = parameters.get("properties") or {}
    kinds = {name: properties.get(name, {}).get("type") for name in parameters.get("required", ())}
    values = {name: _value(name, str(kind), text) for name, kind in kinds.items()}
    return str(function["name"]), json.dumps(values)


def _value(name: str, kind: str, text: str) -> object:
    if kind == "string" and (given := re.search(rf"\bwith {name} ([^\s\"]+)", text)):
        return given[1]
    if kind == "integer" and (number := re.search(rf"(\d+) {name}\b", text)):
        return int(number[1])
    if kind == "string" and (word := re.search(rf"\b{name} ([A-Z0-9-]*\d[A-Z0-9-]*)", text)):
        return word[1]
    examples = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return examples.get(kind, "stand-in")


def pieces(
    job: Job, knobs: Knobs, counters: Counters, speculative: bool, gone: Callable[[], bool]
) -> Iterator[Piece]:
    """The tokens of one job, each after its time; none while the engine is wedged.

    Ends early when ``gone`` says that nobody waits for the answer any more.
    """
    began = time.monotonic()
    counters.add(running=1, prompt_tokens=job.prompt_tokens)
    counters.scripts.append(job.script)
    reason = "abort"
    try:
        for number in range(job.limit):
            time.sleep(1 / max(knobs.decode_rate * (SPOKEN_BEFORE if job.script else 1), 0.01))
            while knobs.wedged and not gone():
                time.sleep(0.05)
            if gone():
                return
            if number == 0:
                counters.add(first_token_seconds=time.monotonic() - began)
            counters.add(generated_tokens=1)
            generating()
            if speculative and number % DRAFTED == 0:
                accepted = round(DRAFTED * knobs.acceptance)
                counters.add(drafts=1, draft_tokens=DRAFTED, accepted_tokens=accepted)
            piece = _piece(number, job, knobs)
            if knobs.corruption and not piece.thought:
                piece = _corrupted(piece, number, job, knobs.corruption, counters)
            yield piece
        reason = job.reason
    finally:
        counters.add(running=-1)
        counters.scripts.remove(job.script)
        counters.finish(reason)


def _piece(number: int, job: Job, knobs: Knobs) -> Piece:
    if knobs.empty_text:
        return Piece("")
    thoughts = min(len(THOUGHTS), job.limit - 1) if job.thinking else 0
    if number < thoughts:
        return Piece(THOUGHTS[number], thought=True)
    if job.script:
        at = number - thoughts
        return Piece(job.script[at] if at < len(job.script) else "")
    turn = job.turn if number >= SAME_WORDS else 0
    return Piece(WORDS[(number + turn) % len(WORDS)])


def _corrupted(piece: Piece, number: int, job: Job, name: str, counters: Counters) -> Piece:
    alone = counters.running < 2
    text = piece.text
    if name == "swapped" and not alone and not job.tool:
        other = next((each for each in list(counters.scripts) if each is not job.script), ())
        text = other[number] if number < len(other) else ""
    total = counters.answered()
    return Piece(corruption.token(name, number, text, total, alone))
