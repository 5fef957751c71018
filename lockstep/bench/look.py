"""One reading of everything on which a measurement depends: engine, counters, clocks, host."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.bench.client import BenchUnreachable, Client
from lockstep.onhost import engines


@dataclass(frozen=True)
class HostLook:
    """The readings of the host; None means that a value is not readable there.

    Attributes:
        restart_key: The restart key with which the process of the hot unit was started.
        file_restart_key: The restart key that its unit file has now.
        start_id: Identity of this start of the unit.
        busy: Share of the processors that worked (0 to 1), over a moment without a request.
        sm_mhz: Clock of the GPU.
        is_throttled: True if heat or power slows the GPU down.
        compiler_line: Last line of the past hour in the engine's log that says that a request
            waited for a kernel, with its time; "": none.
    """

    hot: str | None = None
    restart_key: str | None = None
    file_restart_key: str | None = None
    start_id: str | None = None
    busy: float | None = None
    temperature_c: float | None = None
    sm_mhz: float | None = None
    is_throttled: bool | None = None
    compiler_line: str | None = None


@dataclass(frozen=True)
class HostLoad:
    """The readings at one moment.

    Attributes:
        now, wall: Times as `Clock` gives them.
        models: Names that the engine serves.
        root: The origin of the first model's files.
        context: Longest sequence, tokens.
        engine: The engine, or None if it is none of Lockstep's.
        version: The version that the engine reports.
        counters: The counters, or None if the engine publishes none.
        host: The host's readings, or None without a login.
    """

    now: float
    wall: float
    models: tuple[str, ...]
    root: str | None
    context: int | None
    engine: engines.Engine | None
    version: str | None
    counters: engines.Counters | None
    host: HostLook | None


AskHost = Callable[[], HostLook]


def look(client: Client, ask_host: AskHost | None) -> HostLoad:
    """Take a reading now.

    Raises:
        BenchUnreachable: the engine does not answer.
    """
    models_listed = _json(client.get("/v1/models"), "/v1/models").get("data")
    cards = (
        [card for card in models_listed if isinstance(card, dict)]
        if isinstance(models_listed, list)
        else []
    )
    first = cards[0] if cards else {}
    contexts = (engine.context_in_model_card(first) for engine in engines.ENGINES.values())
    engine, version = _engine(client)
    host = ask_host() if ask_host else None
    page = engines.counters(client.get("/metrics") or "")
    return HostLoad(
        now=client.clock.now(),
        wall=client.clock.wall(),
        models=tuple(str(card["id"]) for card in cards if card.get("id")),
        root=first.get("root"),
        context=next(filter(None, contexts), None),
        engine=engine,
        version=version,
        counters=page,
        host=host,
    )


def _engine(client: Client) -> tuple[engines.Engine | None, str | None]:
    for engine in engines.ENGINES.values():
        for path, key in engine.version_pages:
            if (text := client.get(path)) is not None:
                version = _json(text, path).get(key)
                return engine, None if version is None else str(version)
    return None, None


def _json(text: str | None, path: str) -> dict[str, Any]:
    try:
        document = json.loads(text or "null")
    except ValueError as fault:
        raise BenchUnreachable(f"{path}: not JSON") from fault
    if not isinstance(document, dict):
        raise BenchUnreachable(f"{path}: not an answer of this API")
    return document
