"""One reading of everything that a measurement depends on: engine, counters, clocks, host."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.bench.client import Client, Unreachable
from lockstep.onhost import engines


@dataclass(frozen=True)
class HostLook:
    """What the host said. None: not readable there.

    Attributes:
        generation: What the process of the hot unit was started with.
        written: What its unit file asks for now.
        started: Identity of this start of the unit.
        busy: Share of the processors that were working (0 to 1), over a moment without a request.
        sm_mhz: Clock of the GPU.
        throttled: Whether the GPU is slowed down by heat or power.
        compiled: Last line of the hour in which the engine's log says that a request waited for a
            kernel, with its time; "": none.
    """

    hot: str | None = None
    generation: str | None = None
    written: str | None = None
    started: str | None = None
    busy: float | None = None
    temperature_c: float | None = None
    sm_mhz: float | None = None
    throttled: bool | None = None
    compiled: str | None = None


@dataclass(frozen=True)
class Look:
    """One moment.

    Attributes:
        now, wall: As `Clock` has them.
        models: Names that the engine serves.
        root: Where the first of them was loaded from.
        context: Longest sequence, tokens.
        engine: None where it is none of ours.
        version: As the engine says itself.
        counters: None where the engine publishes none.
        host: None without a login.
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


def look(client: Client, ask_host: AskHost | None) -> Look:
    """Look now. Unreachable: the engine does not answer."""
    listed = _json(client.get("/v1/models"), "/v1/models").get("data")
    cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
    first = cards[0] if cards else {}
    contexts = (engine.context(first) for engine in engines.ENGINES.values())
    engine, version = _engine(client)
    host = ask_host() if ask_host else None
    page = engines.counters(client.get("/metrics") or "")
    return Look(
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
        found = json.loads(text or "null")
    except ValueError as fault:
        raise Unreachable(f"{path}: not JSON") from fault
    if not isinstance(found, dict):
        raise Unreachable(f"{path}: not an answer of this API")
    return found
