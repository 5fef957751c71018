"""Shapes of requests that programs of others send, asked at a gateway, and what became of each."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic
import urllib3
import yaml
from urllib3.exceptions import HTTPError

from lockstep.core.errors import LockstepError
from lockstep.inventory.bound_targets import AUTO
from lockstep.onhost.core.errors import why

#: What became of a request: `evened`: answered after the gateway had evened it out; `unknown`: no
#: answer came that says anything about the shape; `left out`: not asked.
Outcome = Literal["works", "evened", "refused", "unknown", "left out"]

SHAPES = Path(__file__).with_name("shapes.yaml")
#: Header of an answer: what the gateway evened out of its request.
EVENED = "x-lockstep-evened"
_CONNECT_S = 10.0
# A hot model answers 16 tokens in seconds, behind the requests of others in minutes.
_ANSWER_S = 300.0
_MOST_UNANSWERED = 2
_TOKENS = 16
#: Path → its key for the longest answer, and another name of the same.
_LIMITS = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/messages": ("max_tokens", "max_tokens"),
    "/v1/responses": ("max_output_tokens", "max_output_tokens"),
}
# A time-out, too many at once, a gateway or an engine that is not there: nothing about a shape.
_SILENT = (408, 429, 502, 503, 504)
_SILENT_NAMES = ("api_error", "overloaded_error", "rate_limit_error")
_KEY_WANTED = (401, 403)


class Shape(pydantic.BaseModel):
    """One request of a program; the file explains the fields."""

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
    chunked: bool = False
    bom: bool = False

    def text(self) -> bytes:
        """Its body, which asks whatever is hot for a short answer."""
        key, other = _LIMITS[self.path.partition("?")[0]]
        limit = {} if other in self.body else {key: _TOKENS}
        text = json.dumps({"model": AUTO, **limit, **self.body}).encode()
        return (b"\xef\xbb\xbf" if self.bom else b"") + text


@dataclass(frozen=True)
class Row:
    """A shape, and what became of it.

    Attributes:
        evened: Shapes that the gateway evened out of it, in its words.
        why: What was said instead of an answer, or why nobody was asked.
    """

    program: str
    version: str
    shape: str
    source: str
    date: str
    outcome: Outcome
    evened: tuple[str, ...] = ()
    why: str = ""


@dataclass
class Door:
    """A gateway's address, without a path, and the key for it.

    Raises:
        LockstepError: the key is more than one word.
    """

    url: str
    key: str | None = None
    _pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
        )
    )

    def __post_init__(self) -> None:
        # As a header it would be refused with words that repeat it.
        if self.key and not re.fullmatch("[!-~]+", self.key):
            what = "the key is no single word of ASCII letters and signs"
            raise LockstepError(what, remedy="Give a file with the key alone: --key-file.")

    def hot(self) -> str:
        """The model that is hot and chats.

        Raises:
            LockstepError: none is, or the gateway does not say.
        """
        try:
            answer = self._pool.request("GET", f"{self.url}/v1/models", headers=self._headers())
            listed = json.loads(answer.data)
            if not isinstance(listed, dict):
                raise ValueError("no JSON object")
        except (HTTPError, OSError, ValueError) as fault:
            raise LockstepError("no answer of the gateway", found=_short(fault)) from fault
        self._judge_key(answer.status, listed)
        models = listed.get("data", ()) if answer.status == 200 else ()
        found = next((model["lockstep"] for model in models if model.get("id") == AUTO), None)
        if found is None:
            raise LockstepError("no model is hot", remedy="`lockstep switch NAME` starts one.")
        if found["kind"] != "chat":
            what = f"{found['alias_of']} is hot and does not chat"
            raise LockstepError(what, found=found["kind"], allowed="chat")
        return str(found["alias_of"])

    def ask(self, shape: Shape) -> Row:
        """Send one shape.

        Raises:
            LockstepError: the gateway wants another key.
        """
        headers = {"Content-Type": "application/json"} | shape.headers | self._headers()
        text = shape.text()
        # An iterator has no length: it goes in chunks.
        body = iter((text[:100], text[100:])) if shape.chunked else text
        try:
            answer = self._pool.request(
                "POST", self.url + shape.path, body=body, headers=headers, chunked=shape.chunked
            )
        except (HTTPError, OSError) as fault:
            return row(shape, "unknown", why=_short(fault))
        if answer.status != 200:
            said = _message(answer.data)
            self._judge_key(answer.status, said)
            outcome: Outcome = "unknown" if answer.status in _SILENT else "refused"
            return row(shape, outcome, why=f"{answer.status}: {said}")
        if broken := _fault_in(answer.data, shape.body.get("stream") is True):
            return row(shape, *broken)
        evened = tuple(filter(None, answer.headers.get(EVENED, "").split(",")))
        return row(shape, "evened" if evened else "works", evened)

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
    """Every shape, in the file's order."""
    document = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))
    return tuple(Shape.model_validate(each) for each in document["shapes"])


def ask_all(door: Door, chosen: Sequence[Shape], *, pictures: bool) -> Iterator[Row]:
    """Ask one shape after another; those with pictures where the model reads them.

    After two without an answer no more are asked: each may have waited for its whole time-out.
    """
    unanswered = 0
    for shape in chosen:
        if unanswered == _MOST_UNANSWERED:
            yield row(shape, "left out", why="the two before it had no answer")
        elif shape.pictures and not pictures:
            yield row(shape, "left out", why="the model reads no pictures")
        else:
            answer = door.ask(shape)
            unanswered = unanswered + 1 if answer.outcome == "unknown" else 0
            yield answer


def row(shape: Shape, outcome: Outcome, evened: tuple[str, ...] = (), why: str = "") -> Row:
    """The row of a shape with its outcome."""
    of_shape = (shape.program, shape.version, shape.shape, shape.source, shape.date.isoformat())
    return Row(*of_shape, outcome, evened, why)


def _fault_in(data: bytes, stream: bool) -> tuple[Outcome, tuple[str, ...], str] | None:
    """The outcome of status 200 with an error inside, and why; None for a real answer."""
    if not stream:
        return None if _object(data) else ("refused", (), f"no JSON object: {data[:100]!r}")
    lines = [line for line in data.splitlines() if line.startswith(b"data:")]
    events = [found for line in lines if (found := _object(line.removeprefix(b"data:")))]
    for event in events:
        if event.get("error") or event.get("type") in ("error", "response.failed"):
            # A stream that has begun with comments has its status here, Anthropic's a name for it.
            error = _error(event)
            silent = error.get("code", error.get("type")) in (*_SILENT, *_SILENT_NAMES)
            return "unknown" if silent else "refused", (), _words(event)
    return None if events else ("refused", (), "a stream without an event")


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _message(data: bytes) -> str:
    found = _object(data)
    return _words(found) if found else " ".join(data.decode("utf-8", "replace").split())[:300]


def _words(found: Mapping[str, Any]) -> str:
    """The message of an error, in any of the forms that engines and gateway have."""
    message = _error(found).get("message")
    return str(message or found.get("detail") or json.dumps(found))[:300]


def _error(found: Mapping[str, Any]) -> Mapping[str, Any]:
    response = found.get("response")
    inner = found.get("error") or (isinstance(response, dict) and response.get("error")) or found
    return inner if isinstance(inner, dict) else {"message": inner}


def _short(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {why(fault.__cause__ or fault)}"[:200]
