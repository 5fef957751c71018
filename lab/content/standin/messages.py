"""The JSON of the Anthropic API: whole answers, and streams of named events."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from .generation import Job, Piece

Json = dict[str, Any]
_REASONS = {"stop": "end_turn", "length": "max_tokens"}


def as_chat(request: Json) -> Json:
    """The same question as a chat completion: a tool's result is a message, the rest another."""
    system = request.get("system")
    messages = [{"role": "system", "content": system}] if system else []
    for message in request["messages"]:
        messages += _messages(message["role"], message["content"])
    tools = [
        {"type": "function", "function": {**tool, "parameters": tool.get("input_schema")}}
        for tool in request.get("tools") or ()
    ]
    return {**request, "messages": messages, "tools": tools or None, "agent": True}


def _messages(role: str, content: Any) -> list[Json]:
    """One message as SGLang 0.5.23 (anthropic/serving.py) rewrites it."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results = [part for part in content if part["type"] == "tool_result"]
    calls = [part for part in content if part["type"] == "tool_use"]
    plain_parts = [
        {"type": "image_url", "image_url": part["source"]} if part["type"] == "image" else part
        for part in content
        if part["type"] in ("text", "image")
    ]
    rewritten_messages: list[Json] = [
        {"role": "tool", "tool_call_id": part["tool_use_id"], "content": part.get("content", "")}
        for part in results
    ]
    if plain_parts or calls:
        rewritten_messages.append({"role": role, "content": plain_parts or ""})
    if calls:
        rewritten_messages[-1]["tool_calls"] = [
            {
                "id": part["id"],
                "type": "function",
                "function": {"name": part["name"], "arguments": json.dumps(part["input"])},
            }
            for part in calls
        ]
    return rewritten_messages


def whole(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Json:
    """One answer with all of its content."""
    tokens = [part.text for part in parts if not part.is_thought]
    message = _message(job, model, engine)
    text = "".join(tokens)
    block: Json = {"type": "text", "text": text}
    if job.tool:
        block = _use(job) | {"input": json.loads(text or "{}")}
    message["content"] = [block]
    message["usage"]["output_tokens"] = len(tokens)
    return {**message, "stop_reason": _reason(job)}


def events(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Iterator[bytes]:
    """Server-sent events, with the names that the Anthropic API gives them."""
    count = 0
    yield _event("message_start", message=_message(job, model, engine))
    block = _use(job) if job.tool else {"type": "text", "text": ""}
    yield _event("content_block_start", index=0, content_block=block)
    kind, key = ("input_json_delta", "partial_json") if job.tool else ("text_delta", "text")
    for part in parts:
        if not part.is_thought:
            count += 1
            delta = {"type": kind, key: part.text}
            yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    end = {"stop_reason": _reason(job), "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": count})
    yield _event("message_stop")


def _use(job: Job) -> Json:
    return {
        "type": "tool_use",
        "id": f"toolu_{uuid.uuid4().hex[:16]}",
        "name": job.tool,
        "input": {},
    }


def _reason(job: Job) -> str:
    return "tool_use" if job.tool else _REASONS[job.reason]


def _message(job: Job, model: str, engine: str) -> Json:
    return {
        # The engine's own name, whatever the request calls it.
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
