"""The JSON of the OpenAI API: whole answers, streamed chunks and errors."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from .generation import Job, Piece

Json = dict[str, Any]


def error(status: int, message: str, kind: str, engine: str) -> Json:
    """An error in the words of vLLM (nested) or SGLang (flat)."""
    detail: Json = {"message": message, "type": kind, "param": None, "code": status}
    return {"error": detail} if engine == "vllm" else {"object": "error", **detail}


def models(names: Iterable[str], root: str, context: int, engine: str) -> Json:
    """The answer of /v1/models."""
    creation_time = int(time.time())
    cards = [
        {
            "id": name,
            "object": "model",
            "created": creation_time,
            "owned_by": engine,
            "root": root,
            "parent": None,
            "max_model_len": context,
        }
        for name in names
    ]
    return {"object": "list", "data": cards}


def usage(job: Job, generated_tokens: int) -> Json:
    """Tokens counted, as every answer carries them."""
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": generated_tokens,
        "total_tokens": job.prompt_tokens + generated_tokens,
    }


def _head(model: str, kind: str, chat: bool, engine: str) -> Json:
    prefix = "chatcmpl" if chat else "cmpl"
    return {
        "id": f"{prefix}-{uuid.uuid4().hex[:16]}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        # The engine's own name, whatever the request calls it, in every event of a stream.
        "system_fingerprint": engine,
    }


def whole(
    job: Job,
    parts: Iterable[Piece],
    model: str,
    chat: bool,
    with_usage: bool,
    corruption: str = "",
    engine: str = "",
) -> Json:
    """One answer with all of its text."""
    tokens = list(parts)
    text = "".join(part.text for part in tokens if not part.is_thought)
    thoughts = "".join(part.text for part in tokens if part.is_thought)
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": job.reason}
    if job.logprobs:
        choice["logprobs"] = {"content": [_logprob(part, corruption) for part in tokens]}
    if chat:
        message: Json = {"role": "assistant", "content": text, "reasoning": thoughts or None}
        if job.tool and corruption != "call-as-text":
            message |= {"content": None, "tool_calls": [_call(job, text, corruption)]}
            choice["finish_reason"] = "tool_calls"
        choice["message"] = message
    else:
        choice["text"] = text
    answer = _head(model, "chat.completion" if chat else "text_completion", chat, engine)
    answer["choices"] = [choice]
    if with_usage:
        answer["usage"] = usage(job, len(tokens))
    return answer


def _logprob(part: Piece, corruption: str) -> Json:
    # SGLang's encoder writes a value that is no number so.
    value = None if corruption == "nan" else -len(part.text) / 100
    token = {"token": part.text, "logprob": value, "bytes": list(part.text.encode())}
    return {**token, "top_logprobs": [token]}


def _call(job: Job, arguments: str, corruption: str = "") -> Json:
    function = {"name": job.tool, "arguments": arguments}
    if corruption == "empty-call":
        function = {"name": "", "arguments": ""}
    elif corruption == "broken-call":
        function["arguments"] = arguments[:-3]
    return {"id": f"call_{uuid.uuid4().hex[:9]}", "type": "function", "function": function}


def events(
    job: Job, parts: Iterable[Piece], model: str, chat: bool, with_usage: bool, engine: str = ""
) -> Iterator[bytes]:
    """Server-sent events: a role, the tokens, the reason, the usage if asked for, and an end."""
    plain = _head(model, "chat.completion.chunk" if chat else "text_completion", chat, engine)
    count, arguments = 0, ""

    def counted_head() -> Json:
        along = job.usage_in_each and with_usage
        return {**plain, "usage": usage(job, count)} if along else plain

    head = counted_head()
    if chat:
        yield _event(head, {"delta": {"role": "assistant", "content": ""}})
    for part in parts:
        count += 1
        head = counted_head()
        field, text = "reasoning" if part.is_thought else "content", part.text
        if job.tool and not part.is_thought:
            arguments, text = arguments + text, ""
        yield _event(head, {"delta": {field: text}} if chat else {"text": text})
    reason = job.reason
    if job.tool:
        reason = "tool_calls"
        yield _event(head, {"delta": {"tool_calls": [{"index": 0, **_call(job, arguments)}]}})
    last: Json = {"delta": {}} if chat else {"text": ""}
    yield _event(head, last | {"finish_reason": reason})
    if job.usage_in_stream and with_usage:
        yield _data({**plain, "choices": [], "usage": usage(job, count)})
    yield b"data: [DONE]\n\n"


def _event(head: Json, choice: Json) -> bytes:
    base: Json = {"index": 0, "logprobs": None, "finish_reason": None}
    return _data({**head, "choices": [base | choice]})


def _data(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
