"""The JSON of OpenAI's Responses: whole answers, and streams of named events."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from .generation import Job, Piece

Json = dict[str, Any]
_SYSTEM = ("system", "developer")


def as_chat(request: Json, engine: str) -> Json:
    """The same question as a chat completion; for SGLang the system's texts come first, as one.

    SGLang 0.5.23 (serving_responses.py) and vLLM 0.33 do the same.
    """
    request_input = request.get("input") or []
    items = (
        [{"role": "user", "content": request_input}]
        if isinstance(request_input, str)
        else request_input
    )
    messages: list[Json] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    for item in items:
        _add(messages, item)
    if engine == "sglang":
        first = [message for message in messages if message["role"] in _SYSTEM]
        conversation = [message for message in messages if message["role"] not in _SYSTEM]
        words = "\n\n".join(_text(message["content"]) for message in first)
        messages = [*([{"role": "system", "content": words}] if first else []), *conversation]
    functions = [tool for tool in request.get("tools") or () if tool.get("type") == "function"]
    tools = [{"type": "function", "function": tool} for tool in functions]
    chat = {**request, "messages": messages, "tools": tools or None, "agent": True}
    return chat | {"max_tokens": request.get("max_output_tokens")}


def _add(messages: list[Json], item: Json) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item["role"], "content": _content(item["content"])})
    elif kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        content = _content(item["output"])
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if part["type"] == "input_image"
        else {"type": "text", "text": part.get("text", "")}
        for part in content
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def whole(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Json:
    """One answer with all of its output."""
    tokens = [part.text for part in parts if not part.is_thought]
    return _response(job, model, engine, [_item(job, "".join(tokens))], len(tokens))


def events(job: Job, parts: Iterable[Piece], model: str, engine: str) -> Iterator[bytes]:
    """Server-sent events, with the names that OpenAI gives them."""
    first_response = _response(job, model, engine, [], 0) | {"status": "in_progress"}
    yield _event("response.created", response=first_response)
    item = _item(job, "")
    place = {"item_id": item["id"], "output_index": 0}
    empty = item | {"content": []} if "content" in item else item
    yield _event("response.output_item.added", output_index=0, item=empty)
    if not job.tool:
        first = {"type": "output_text", "text": "", "annotations": []}
        yield _event("response.content_part.added", **place, content_index=0, part=first)
    text, count = "", 0
    for part in parts:
        if not part.is_thought:
            text, count = text + part.text, count + 1
            if job.tool:
                yield _event("response.function_call_arguments.delta", **place, delta=part.text)
            else:
                words = {"content_index": 0, "delta": part.text}
                yield _event("response.output_text.delta", **place, **words)
    item = _item(job, text) | {"id": item["id"]}
    yield _event("response.output_item.done", output_index=0, item=item)
    end = _response(job, model, engine, [item], count) | {"id": first_response["id"]}
    yield _event(f"response.{end['status']}", response=end)


def _item(job: Job, text: str) -> Json:
    name = uuid.uuid4().hex[:16]
    if job.tool:
        call = {"name": job.tool, "arguments": text, "call_id": f"call_{name}"}
        return {"type": "function_call", "id": f"fc_{name}", "status": "completed", **call}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    head = {"type": "message", "id": f"msg_{name}", "role": "assistant"}
    return {**head, "status": "completed", "content": content}


def _response(job: Job, model: str, engine: str, output: list[Json], count: int) -> Json:
    cut = job.reason == "length"
    total = job.prompt_tokens + count
    return {
        # The engine's own name, whatever the request calls it.
        "id": f"resp_{uuid.uuid4().hex[:16]} {engine}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": job.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": total,
        },
    }


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
