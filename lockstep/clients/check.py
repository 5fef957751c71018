"""Shapes of requests that other programs send, asked at a gateway, with the outcome of each."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic
import yaml

from lockstep.core.errors import LockstepError
from lockstep.inventory.bound_models import AUTO
from lockstep.onhost.core import http_client
from lockstep.onhost.core.errors import why_with_kind

#: The outcome of a request. `evened`: answered after the gateway had evened it out; `unknown`: no
#: answer came that says anything about the shape; `left out`: not asked.
Outcome = Literal["works", "evened", "refused", "unknown", "left out"]

SHAPES = Path(__file__).with_name("shapes.yaml")
#: The header of an answer that names the shapes which the gateway evened out of the request.
EVENED = "x-lockstep-evened"
# A hot model answers 16 tokens in seconds, or in minutes behind the requests of others.
_ANSWER_S = 300.0
_CONNECT_S = 10.0
_MOST_UNANSWERED = 2
_TOKENS = 16
#: The key for the longest answer by path, with an alternative name of that key.
_LIMITS = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/messages": ("max_tokens", "max_tokens"),
    "/v1/responses": ("max_output_tokens", "max_output_tokens"),
}
# A time-out, too many requests, or an absent gateway or engine say nothing about a shape.
_SILENT = (408, 429, 502, 503, 504)
_SILENT_NAMES = ("api_error", "overloaded_error", "rate_limit_error")
_KEY_WANTED = (401, 403)


class Shape(pydantic.BaseModel):
    """One request of a program; `shapes.yaml` explains the fields."""

    model_config = pydantic.ConfigDict(extra="forbid")

    program: str
    version: str
    shape: str
    source: str
    date: datetime.date
    path: str
    body: dict[str, Any]
    headers: dict[str, str] = {}
    pictures: bool = False
    chunks: bool = False
    bom: bool = False

    def text(self) -> bytes:
        """Return the request's body, which asks the hot model for a short answer."""
        key, other_key = _LIMITS[self.path.partition("?")[0]]
        limit = {} if other_key in self.body else {key: _TOKENS}
        text = json.dumps({"model": AUTO, **limit, **self.body}).encode()
        return (b"\xef\xbb\xbf" if self.bom else b"") + text


@dataclass(frozen=True)
class ClientResult:
    """A shape and its outcome.

    Attributes:
        evened_shapes: Shapes that the gateway evened out of it, in the gateway's words.
        why: The message that came instead of an answer, or the reason why nothing was sent.
    """

    program: str
    version: str
    shape: str
    source: str
    date: str
    outcome: Outcome
    evened_shapes: tuple[str, ...] = ()
    why: str = ""


@dataclass
class GatewayAddress:
    """A gateway's address without a path, and the key for it.

    Raises:
        LockstepError: the key is more than one word.
    """

    url: str
    key: str | None = None

    def __post_init__(self) -> None:
        # A refusal of such a header would repeat the key in its message.
        if self.key and not re.fullmatch("[!-~]+", self.key):
            summary = "the key is no single word of ASCII letters and signs"
            raise LockstepError(summary, remedy="Give a file with the key alone: --key-file.")

    def hot(self) -> str:
        """Return the name of the hot chat model.

        Raises:
            LockstepError: no chat model is hot, or the gateway does not say.
        """
        try:
            answer = http_client.ask(
                f"{self.url}/v1/models", _ANSWER_S, headers=self._headers(), connect_s=_CONNECT_S
            )
            document = json.loads(answer.body)
            if not isinstance(document, dict):
                raise ValueError("no JSON object")
        except (*http_client.FAULTS, ValueError) as fault:
            raise LockstepError("no answer of the gateway", found=why_with_kind(fault)) from fault
        self._judge_key(answer.status, document)
        models = document.get("data", ()) if answer.status == 200 else ()
        hot_model = next((model["lockstep"] for model in models if model.get("id") == AUTO), None)
        if hot_model is None:
            raise LockstepError("no model is hot", remedy="`lockstep switch NAME` starts one.")
        if hot_model["kind"] != "chat":
            summary = f"{hot_model['alias_of']} is hot and does not chat"
            raise LockstepError(summary, found=hot_model["kind"], allowed="chat")
        return str(hot_model["alias_of"])

    def ask(self, shape: Shape) -> ClientResult:
        """Send one shape.

        Raises:
            LockstepError: the gateway wants another key.
        """
        headers = {"Content-Type": "application/json"} | shape.headers | self._headers()
        text = shape.text()
        # An iterator has no length, so the body is sent in chunks.
        body = iter((text[:100], text[100:])) if shape.chunks else text
        try:
            answer = http_client.ask(
                self.url + shape.path, _ANSWER_S, "POST", body, headers, connect_s=_CONNECT_S
            )
        except http_client.FAULTS as fault:
            return row(shape, "unknown", why=why_with_kind(fault))
        if answer.status != 200:
            message = _message(answer.body)
            self._judge_key(answer.status, message)
            outcome: Outcome = "unknown" if answer.status in _SILENT else "refused"
            return row(shape, outcome, why=f"{answer.status}: {message}")
        if inner_fault := _fault_in(answer.body, shape.body.get("stream") is True):
            return row(shape, *inner_fault)
        evened_shapes = tuple(filter(None, answer.headers.get(EVENED, "").split(",")))
        return row(shape, "evened" if evened_shapes else "works", evened_shapes)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def _judge_key(self, status: int, answer: object) -> None:
        if status in _KEY_WANTED:
            raise LockstepError(
                "the gateway refuses the key" if self.key else "the gateway asks for a key",
                found=f"HTTP {status} {answer}"[:200],
                remedy="Give the file of one with --key-file; `lockstep key add NAME` makes one.",
            )


def shapes() -> tuple[Shape, ...]:
    """Return every shape, in the file's order."""
    document = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))
    return tuple(Shape.model_validate(shape) for shape in document["shapes"])


def ask_all(
    gateway_address: GatewayAddress, chosen_shapes: Sequence[Shape], *, pictures: bool
) -> Iterator[ClientResult]:
    """Ask one shape after another; those with pictures only if the model reads pictures.

    After two shapes without an answer the rest are left out, because each may wait for its whole
    time-out.
    """
    unanswered_count = 0
    for shape in chosen_shapes:
        if unanswered_count == _MOST_UNANSWERED:
            yield row(shape, "left out", why="the two before it had no answer")
        elif shape.pictures and not pictures:
            yield row(shape, "left out", why="the model reads no pictures")
        else:
            answer = gateway_address.ask(shape)
            unanswered_count = unanswered_count + 1 if answer.outcome == "unknown" else 0
            yield answer


def row(
    shape: Shape, outcome: Outcome, evened_shapes: tuple[str, ...] = (), why: str = ""
) -> ClientResult:
    """Return the row of a shape with its outcome."""
    of_shape = (shape.program, shape.version, shape.shape, shape.source, shape.date.isoformat())
    return ClientResult(*of_shape, outcome, evened_shapes, why)


def _fault_in(data: bytes, stream: bool) -> tuple[Outcome, tuple[str, ...], str] | None:
    """Return the outcome and the reason for an error inside status 200; None for a real answer."""
    if not stream:
        return None if _object(data) else ("refused", (), f"no JSON object: {data[:100]!r}")
    lines = [line for line in data.splitlines() if line.startswith(b"data:")]
    events = [event for line in lines if (event := _object(line.removeprefix(b"data:")))]
    for event in events:
        if event.get("error") or event.get("type") in ("error", "response.failed"):
            # A stream that has begun with comments carries its status here, Anthropic's a name for
            # it.
            error = _error(event)
            silent = error.get("code", error.get("type")) in (*_SILENT, *_SILENT_NAMES)
            return "unknown" if silent else "refused", (), _words(event)
    return None if events else ("refused", (), "a stream without an event")


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _message(data: bytes) -> str:
    document = _object(data)
    return _words(document) if document else " ".join(data.decode("utf-8", "replace").split())[:300]


def _words(document: Mapping[str, Any]) -> str:
    """Return the message of an error, in any of the forms of engines and gateway."""
    message = _error(document).get("message")
    return str(message or document.get("detail") or json.dumps(document))[:300]


def _error(document: Mapping[str, Any]) -> Mapping[str, Any]:
    response = document.get("response")
    inner = (
        document.get("error") or (isinstance(response, dict) and response.get("error")) or document
    )
    return inner if isinstance(inner, dict) else {"message": inner}
