"""Requests of Open WebUI 0.12.4 to the servers behind OPENAI_API_BASE_URLS."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

#: Limit for the list of models (AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST). An answer may take any time.
LIST_S = 10
#: Some of Open WebUI's tools, offered to every model unless its capabilities say otherwise.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_current_timestamp",
            "description": "Get the current Unix timestamp in seconds.",
            "parameters": {"properties": {}, "type": "object"},
        },
    }
]

Message = Mapping[str, Any]
Event = dict[str, str]


class Connections:
    """The servers, and the models that they had at the last request for the list."""

    def __init__(self, bases: list[str], keys: list[str], environment: Mapping[str, str]) -> None:
        self._bases = bases
        self._keys = keys
        self._task_model = environment.get("TASK_MODEL_EXTERNAL", "")
        metadata = json.loads(environment.get("DEFAULT_MODEL_METADATA") or "{}")
        self._tools = metadata.get("capabilities", {}).get("builtin_tools", True)
        self._models: dict[str, dict[str, Any]] = {}

    def models(self) -> list[dict[str, Any]]:
        """The models of all servers that answer in time; of one name the first server's model."""
        cards: dict[str, dict[str, Any]] = {}
        for number, base in enumerate(self._bases):
            try:
                with self._open(number, "/models", None, LIST_S) as answer:
                    for card in json.load(answer)["data"]:
                        cards.setdefault(card["id"], card | {"urlIdx": number})
            except (OSError, ValueError, KeyError) as error:
                print(f"{base}: {error}", flush=True)
        self._models = cards
        return list(cards.values())

    def chat(self, model: str, messages: list[Message]) -> Iterator[Event]:
        """Answer one message of a person: yield the answer in parts, or the error.

        A title is requested beside the first answer. Follow-up questions and tags are requested
        after every answer, also after one that a server broke off with an error.
        """
        if model not in self._models:
            self.models()
        if model not in self._models:
            yield {"error": "Model not found"}
            return
        if len(messages) == 1:
            self._task(model, "Generate a concise title summarizing the chat history.")
        body: dict[str, Any] = {"stream": True, "model": model, "messages": messages}
        if self._tools:
            body["tools"] = TOOLS
        try:
            with self._open(self._models[model]["urlIdx"], "/chat/completions", body) as answer:
                yield from _events(answer)
        except urllib.error.HTTPError as error:
            yield {"error": _sentence(error.read())}
            return
        except OSError:
            yield {"error": "Open WebUI: Server Connection Error"}
            return
        self._task(model, "Predict 3-5 useful messages this user might naturally send next.")
        self._task(model, "Generate 1-3 broad tags categorizing the main themes.")

    def _task(self, model: str, task: str) -> None:
        """Send a request of Open WebUI's own, without a stream; nobody waits for the answer."""
        name = self._task_model if self._task_model in self._models else model
        body = {
            "model": name,
            "messages": [{"role": "user", "content": f"### Task:\n{task}"}],
            "stream": False,
        }
        number = self._models[name]["urlIdx"]

        def ask() -> None:
            with (
                contextlib.suppress(OSError),
                self._open(number, "/chat/completions", body) as response,
            ):
                response.read()

        threading.Thread(target=ask, daemon=True).start()

    def _open(self, number: int, path: str, body: object, limit_s: float | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._bases[number].rstrip('/')}{path}", data)
        request.add_header("Content-Type", "application/json")
        if number < len(self._keys) and self._keys[number]:
            request.add_header("Authorization", f"Bearer {self._keys[number]}")
        return urllib.request.urlopen(request, timeout=limit_s)


def _events(lines: Any) -> Iterator[Event]:
    """The parts of a stream. Lines without `data:` and data that are not JSON are skipped."""
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        with contextlib.suppress(ValueError):
            data = json.loads(line.removeprefix(b"data:"))
            choices = data.get("choices") or []
            if not choices and data.get("error"):
                yield {"error": _sentence(json.dumps(data).encode())}
            if text := "".join(choice["delta"].get("content") or "" for choice in choices):
                yield {"content": text}


def _sentence(body: bytes) -> str:
    """The text of an error as a person sees it: its message, or all of it."""
    try:
        document = json.loads(body)
        error = document.get("error", document)
        return str(error.get("message") or error.get("detail") or error)
    except (ValueError, AttributeError):
        return body.decode(errors="replace")
