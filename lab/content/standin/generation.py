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
from .refusals import StandinRefusal

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
#: Factor by which tokens come faster when the prompt has them already and they are drafted.
SPOKEN_BEFORE = 20


@dataclass(frozen=True)
class Piece:
    """One generated token: its text, and whether it belongs to the thoughts."""

    text: str
    is_thought: bool = False


@dataclass(frozen=True)
class Job:
    """A checked request. ``limit`` is the number of tokens at which its answer ends.

    ``turn`` is the place in the words where a prompt-dependent answer goes on. ``script`` are the
    tokens of an answer that the prompt determines, the arguments of a tool call included.
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
        raise StandinRefusal(404, f"The model `{model}` does not exist.", "NotFoundError")
    if chat:
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages:
            raise StandinRefusal(400, "messages: Field required")
        tools = request.get("tools")
        if tools == [] and serving.engine == "vllm":
            # vLLM 0.33, chat_completion/protocol.py.
            raise StandinRefusal(400, "`tools` must not be an empty array")
        if template and knobs.check_template:
            template.check(messages, tools)
        text = " ".join(_text(message, serving) for message in messages)
    else:
        text = str(request.get("prompt", ""))
    options_of_template = request.get("chat_template_kwargs") or {}
    if options_of_template and knobs.refuse_template:
        raise StandinRefusal(400, "chat_template is not supported for Mistral tokenizers.")
    if request.get("logprobs") and knobs.refuse_logprobs:
        raise StandinRefusal(400, "logprobs are not supported")
    tool, script = (None, ()) if request.get("ignore_eos") else _script(request, text, chat)
    max_tokens = request.get("max_completion_tokens") or request.get("max_tokens")
    thinking = chat and bool(options_of_template.get("enable_thinking", serving.thinking))
    thoughts = len(THOUGHTS) if thinking or knobs.always_thinks else 0
    natural = thoughts + len(script) if script else NATURAL_LENGTH
    if request.get("ignore_eos") or knobs.corruption in corruption.ENDLESS:
        natural = 10**6
    if knobs.corruption == "truncated":
        natural = thoughts + len(script) // 2 if script else natural
    limit = min(int(max_tokens), natural) if max_tokens else min(natural, 1024)
    prompt_tokens = 4 + len(text.split())
    if prompt_tokens + limit > serving.context:
        raise StandinRefusal(
            400, f"This model's maximum context length is {serving.context} tokens."
        )
    options = request.get("stream_options") or {}
    return Job(
        prompt_tokens=prompt_tokens,
        limit=limit,
        reason="length" if max_tokens and int(max_tokens) <= limit else "stop",
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
    """The tool to call with the tokens of its arguments, or the tokens of a determined answer."""
    tool, arguments = _tool_call(request, text) if chat else (None, "")
    if tool:
        return tool, tuple(_TOKEN.findall(arguments))
    count = re.search(r"\b[Cc]ount from (\d+) to (\d+)\b", text)
    if count:
        numbers = range(int(count[1]), int(count[2]) + 1)
        return None, tuple(_TOKEN.findall(" ".join(map(str, numbers))))
    repeat = re.search(r"Repeat these .*?\n\n(.+)", text, re.DOTALL)
    return None, tuple(_TOKEN.findall(repeat[1])) if repeat else ()


#: Tokenizers cut unknown words like this: each digit is a token, and letters go in pairs.
_TOKEN = re.compile(r"\d|[^\W\d]{1,2}|\W")


def _text(message: Json, serving: Serving) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text" and serving.text_only:
            raise StandinRefusal(400, f"At most 0 image(s) may be provided: {part.get('type')}")
    return " ".join(str(part.get("text", "")) for part in content)


def _tool_call(request: Json, text: str) -> tuple[str | None, str]:
    """Choose a function and its arguments: the function that the text names, or the first one.

    Each required parameter has a value: the one in the text beside the parameter's name, or an
    example. For an agent only the named function is called, and only once.
    """
    functions = [tool["function"] for tool in request.get("tools") or [] if "function" in tool]
    roles = [message.get("role") for message in request["messages"]]
    wish = re.search(r"\b[Uu]se the tool (\w+)", text)
    if request.get("agent") or wish:
        wished_functions = [
            candidate for candidate in functions if wish and candidate["name"] == wish[1]
        ]
        functions = [] if "tool" in roles else wished_functions
    if not functions or request.get("tool_choice") == "none" or roles[-1] == "tool":
        return None, ""
    function = functions[0]
    parameters = function.get("parameters") or {}
    properties = parameters.get("properties") or {}
    kinds = {name: properties.get(name, {}).get("type") for name in parameters.get("required", ())}
    values = {name: _value(name, str(kind), text) for name, kind in kinds.items()}
    return str(function["name"]), json.dumps(values)


def _value(name: str, kind: str, text: str) -> object:
    if kind == "string" and (match := re.search(rf"\bwith {name} ([^\s\"]+)", text)):
        return match[1]
    if kind == "integer" and (number := re.search(rf"(\d+) {name}\b", text)):
        return int(number[1])
    if kind == "string" and (word := re.search(rf"\b{name} ([A-Z0-9-]*\d[A-Z0-9-]*)", text)):
        return word[1]
    examples = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return examples.get(kind, "stand-in")


def pieces(
    job: Job, knobs: Knobs, counters: Counters, speculative: bool, is_gone: Callable[[], bool]
) -> Iterator[Piece]:
    """The tokens of one job, each after its time; none while the engine is wedged.

    Ends early when ``is_gone`` says that the client has left.
    """
    began = time.monotonic()
    counters.add(running=1, prompt_tokens=job.prompt_tokens)
    counters.scripts.append(job.script)
    reason = "abort"
    try:
        for number in range(job.limit):
            time.sleep(1 / max(knobs.decode_rate * (SPOKEN_BEFORE if job.script else 1), 0.01))
            while knobs.is_wedged and not is_gone():
                time.sleep(0.05)
            if is_gone():
                return
            if number == 0:
                counters.add(first_token_seconds=time.monotonic() - began)
            counters.add(generated_tokens=1)
            generating()
            if speculative and number % DRAFTED == 0:
                accepted_tokens = round(DRAFTED * knobs.acceptance)
                counters.add(drafts=1, draft_tokens=DRAFTED, accepted_tokens=accepted_tokens)
            piece = _piece(number, job, knobs)
            if knobs.corruption and not piece.is_thought:
                piece = _corrupt_piece(piece, number, job, knobs.corruption, counters)
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
        return Piece(THOUGHTS[number], is_thought=True)
    if job.script:
        at = number - thoughts
        return Piece(job.script[at] if at < len(job.script) else "")
    turn = job.turn if number >= SAME_WORDS else 0
    return Piece(WORDS[(number + turn) % len(WORDS)])


def _corrupt_piece(piece: Piece, number: int, job: Job, name: str, counters: Counters) -> Piece:
    alone = counters.running < 2
    text = piece.text
    if name == "swapped" and not alone and not job.tool:
        other_script = next(
            (script for script in list(counters.scripts) if script is not job.script), ()
        )
        text = other_script[number] if number < len(other_script) else ""
    total = counters.count_answer_token()
    return Piece(corruption.token(name, number, text, total, alone))
