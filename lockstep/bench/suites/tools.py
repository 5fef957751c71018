"""Suite `tools`: consecutive structured tool calls, and two user messages in a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lockstep.bench.prompts import mark, user
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, BenchSample
from lockstep.bench.suites.coding import zero

_MOST_TOKENS = 512
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
}


def _tool(name: str, about: str, **arguments: str | list[str]) -> dict[str, Any]:
    """Return a function in the API's form; an argument has a type or a list of allowed words."""
    properties = {
        key: {"type": "string", "enum": kind} if isinstance(kind, list) else {"type": kind}
        for key, kind in arguments.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = (
    _tool(
        "read_file",
        "Read some lines of a file.",
        path="string",
        first_line="integer",
        last_line="integer",
    ),
    _tool(
        "switch_model",
        "Make a model the hot one.",
        model=["qwen", "mistral", "none"],
        wait="boolean",
    ),
    _tool("book_room", "Book a meeting room.", room="string", hours="number", guests="array"),
)


def _lines(path: str, first: int, last: int) -> dict[str, Any]:
    return {"path": path, "first_line": first, "last_line": last}


# The request, the tool, and the arguments that the sentence fixes.
TASKS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("Read lines 10 to 25 of /etc/hosts.", "read_file", _lines("/etc/hosts", 10, 25)),
    ("Make mistral hot and wait for it.", "switch_model", {"model": "mistral", "wait": True}),
    (
        "Book room Turing for 1.5 hours for Ada and Grace.",
        "book_room",
        {"room": "Turing", "hours": 1.5},
    ),
    ("Show me only line 1 of deploy.py.", "read_file", _lines("deploy.py", 1, 1)),
    ("Turn every model off, do not wait.", "switch_model", {"model": "none", "wait": False}),
    (
        "Reserve room Hopper for 2 hours, guests: Linus, Ken and Dennis.",
        "book_room",
        {"room": "Hopper", "hours": 2},
    ),
    ("I need lines 100 to 140 of src/main.rs.", "read_file", _lines("src/main.rs", 100, 140)),
    ("Switch to qwen without waiting.", "switch_model", {"model": "qwen", "wait": False}),
    ("Book room Lovelace for 0.5 hours, nobody else comes.", "book_room", {"room": "Lovelace"}),
    ("Read the first 5 lines of README.md.", "read_file", _lines("README.md", 1, 5)),
)


def tools(bench: Bench) -> Outcome:
    """Count how many of ten consecutive calls are valid, with the reasons for the others."""
    samples = [bench.ask(_ask(text)) for text, _, _ in TASKS]
    refusals = [sample.refusal for sample in samples if sample.refusal]
    pair, double_sample = _two_messages(bench)
    if len(refusals) == len(samples):
        return Outcome((*samples, *pair), {}, refusal=refusals[0])
    samples_and_tasks = zip(samples, TASKS, strict=True)
    why = {
        text: wrong(sample, name, fixed_arguments)
        for sample, (text, name, fixed_arguments) in samples_and_tasks
    }
    valid = sum(not reason for reason in why.values())
    summary = {
        "valid": valid,
        "calls": len(samples),
        "why_not": {text: reason for text, reason in why.items() if reason},
        "two_user_messages": double_sample,
    }
    return Outcome((*samples, *pair), summary, checks=(zero(valid, len(samples), "tool calls"),))


def wrong(sample: BenchSample, name: str, fixed_arguments: Mapping[str, Any]) -> str:
    """Return why an answer is no valid call of that tool with those arguments, or ""."""
    if sample.refusal:
        return sample.refusal
    if not sample.tool_calls:
        return f"no tool call but text: {sample.text[:80]!r}"
    function = sample.tool_calls[0].get("function") or {}
    if function.get("name") != name:
        return f"calls {function.get('name')!r} instead of {name!r}"
    try:
        arguments = json.loads(function.get("arguments") or "")
    except ValueError:
        return f"arguments are not JSON: {str(function.get('arguments'))[:80]!r}"
    schema = next(tool["function"] for tool in TOOLS if tool["function"]["name"] == name)
    return _against(arguments, schema["parameters"], fixed_arguments)


def _against(arguments: Any, schema: Mapping[str, Any], fixed_arguments: Mapping[str, Any]) -> str:
    if not isinstance(arguments, dict):
        return f"arguments are no object: {arguments!r:.80}"
    properties = schema["properties"]
    for key in schema["required"]:
        if key not in arguments:
            return f"{key} is missing"
    for key, value in arguments.items():
        if key not in properties:
            return f"{key} is no argument of this tool"
        kind = properties[key]["type"]
        number = isinstance(value, bool) and kind != "boolean"
        if number or not isinstance(value, _TYPES[kind]):
            return f"{key} is {value!r:.40}, not of type {kind}"
        if value not in properties[key].get("enum", [value]):
            return f"{key} is {value!r:.40}, which is not allowed"
        if key in fixed_arguments and value != fixed_arguments[key]:
            return f"{key} is {value!r:.40} instead of {fixed_arguments[key]!r}"
    return ""


def _two_messages(bench: Bench) -> tuple[list[BenchSample], dict[str, Any]]:
    """Return the HTTP status of two user messages in a row, at the engine and at the API's port."""
    messages = tuple({"role": "user", "content": text} for text in (f"[{mark()}] Hello.", "Go on."))
    ask = Ask("two user messages", messages, 16, stream=False)
    engine = bench.ask(ask)
    fields = {"engine": engine.refusal or engine.status}
    if bench.api is None:
        return [engine], fields
    behind = bench.api.complete(ask)
    return [engine, behind], {**fields, "port": behind.refusal or behind.status}


def _ask(text: str) -> Ask:
    extra = {"tools": list(TOOLS), "tool_choice": "auto"}
    return Ask("tool call", user(text), _MOST_TOKENS, stream=False, extra=extra)
