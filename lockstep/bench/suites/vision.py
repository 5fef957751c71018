"""Suite `vision`: the words and shapes that a model reads of a known screenshot, or invents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.bench.prompts import mark
from lockstep.bench.ruler import Check
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, BenchSample
from lockstep.bench.suites.picture import Picture, draw

_MOST_TOKENS = 1024
_PROMPT = (
    "This is a screenshot. Say what is in it as JSON and nothing else: "
    '{"texts": [every line of text exactly as written], "shapes": ["COLOUR SHAPE", ...]}. '
    "Boxes around or behind text are no shapes. List nothing that is not there."
)
# Other names that a reader may use for the shapes.
_SAME = {"circle": ("circle", "disc", "disk", "dot"), "square": ("square", "rectangle", "box")}


def vision(bench: Bench) -> Outcome:
    """Send one request with one image, and compare the answer with the weight map."""
    picture = draw()
    content = [
        {"type": "text", "text": f"[{mark()}] {_PROMPT}"},
        {"type": "image_url", "image_url": {"url": picture.url}},
    ]
    messages = ({"role": "user", "content": content},)
    sample = bench.ask(Ask("screenshot", messages, _MOST_TOKENS))
    tensors = bench.vision_tensors
    beside = f"the weight map has {'unknown' if tensors is None else tensors} vision tensors"
    notes = [f"HTTP {sample.status}; {beside}"]
    if sample.refusal:
        if tensors:
            notes.append("it could see: is it served with --language-model-only?")
        return Outcome((sample,), {}, refusal=sample.refusal, notes=tuple(notes))
    summary = {"http": sample.status, "vision_tensors": tensors, **read(picture, sample)}
    return Outcome((sample,), summary, checks=_checks(summary, tensors), notes=tuple(notes))


def read(picture: Picture, sample: BenchSample) -> dict[str, Any]:
    """Count the words and shapes of the picture that were read, and list the invented ones."""
    answer_words = _answer_words(sample.text)
    words = {word for line in picture.texts for word in line.split()}
    words_found = {
        word.upper() for line in answer_words["texts"] for word in re.findall(r"\w+", line)
    }
    shapes = {
        shape
        for shape in picture.shapes
        if any(_is(shape, read_shape) for read_shape in answer_words["shapes"])
    }
    invented_things = sorted(words_found - words) + [
        read_shape
        for read_shape in answer_words["shapes"]
        if not any(_is(shape, read_shape) for shape in picture.shapes)
    ]
    return {
        "words_read": len(words & words_found),
        "words": len(words),
        "shapes_read": len(shapes),
        "shapes": len(picture.shapes),
        "invented": len(invented_things),
        "invented_what": ", ".join(invented_things)[:300],
        "missed": ", ".join(sorted((words - words_found) | (set(picture.shapes) - shapes))),
    }


def _checks(summary: Mapping[str, Any], tensors: int | None) -> tuple[Check, ...]:
    good = summary["words_read"] + summary["shapes_read"]
    if tensors == 0 and summary["words_read"]:
        finding = f"{good} things read, but the weight map has no vision tensor"
        return (Check("weights", "suspect", finding),)
    return (Check("weights", "ok" if tensors else "unread", f"{tensors} vision tensors"),)


def _answer_words(text: str) -> dict[str, list[str]]:
    """Return the JSON of an answer, or all of its words as text if it has no JSON."""
    match = re.search(r"\{.*\}", text.rpartition("</think>")[2], re.DOTALL)
    try:
        data = json.loads(match[0]) if match else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return {"texts": [text], "shapes": []}
    return {key: list(_strings(data.get(key))) for key in ("texts", "shapes")}


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        yield " ".join(str(part) for part in value.values())
    elif value is not None:
        yield str(value)


def _is(shape: str, read_name: str) -> bool:
    colour, _, form = shape.partition(" ")
    words = re.findall(r"[a-z]+", read_name.lower())
    return colour in words and any(name in words for name in _SAME[form])
