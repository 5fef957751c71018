"""The JSON of the Anthropic API: text alone, as whole answers and as streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from .generation import Job, Piece

Json = dict[str, Any]
_REASONS = {"stop": "end_turn", "length": "max_tokens"}


def as_chat(request: Json) -> Json:
    """The same question as a chat completion."""
    system = request.get("system")
    first = [{"role": "system", "content": system}] if system else []
    return {**request, "messages": [*first, *request["messages"]], "tools": None}


def whole(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Json:
    """One answer with all of its text."""
    tokens = [part.text for part in parts if not part.thought]
    message = _message(job, model, engine)
    message["content"] = [{"type": "text", "text": "".join(tokens)}]
    message["usage"]["output_tokens"] = len(tokens)
    return {**message, "stop_reason": _REASONS[job.reason]}


def events(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Iterator[bytes]:
    """Server-sent events, with the names that the Anthropic API gives them."""
    count = 0
    yield _event("message_start", message=_message(job, model, engine))
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for part in parts:
        if not part.thought:
            count += 1
            delta = {"type": "text_delta", "text": part.text}
            yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    end = {"stop_reason": _REASONS[job.reason], "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": count})
    yield _event("message_stop")


def _message(job: Job, model: str, engine: str) -> Json:
    return {
        # Which engine answers, whatever the request calls it.
        "id": f"msg_{uuid.uuid4().hex[:16]} {engine}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": job.prompt_tokens, "output_tokens": 0},
    }


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
