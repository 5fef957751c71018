"""Names that a request may have as its model, and the targets behind them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from lockstep.onhost.core import config
from lockstep.onhost.gateway.configuration import Gateway
from lockstep.onhost.gateway.hot import Hot

#: Whatever is hot.
AUTO = "auto"
_STATES = {"hot": "hot", "loading": "loading", "restarting": "loading"}


class Models:
    """The targets of this host that answer here: of a cluster, those of rank 0."""

    def __init__(self, gateway: Gateway, host: config.Host, hot: Hot) -> None:
        self._gateway = gateway
        self._host = host
        self._hot = hot
        self._since = int(time.time())
        self._targets = [name for name, target in host.targets.items() if target.engine_url]
        self._names: dict[str, list[str]] = {}
        # A target's own name beats an alias, and an alias beats what an engine calls its model, and
        # that what the hub calls it.
        for name in self._targets:
            self._names[name] = [name]
        others: tuple[Callable[[str], Iterable[str]], ...] = (
            self._aliases,
            lambda name: (host.targets[name].model,),
            lambda name: host.targets[name].weights[:1],
        )
        for names in others:
            taken = set(self._names)
            for name in self._targets:
                for other in names(name):
                    if other not in taken:
                        self._names.setdefault(other, []).append(name)
        self._names.setdefault(AUTO, self._targets)

    async def target(self, name: str) -> str | None:
        """The target that a name means: the hot one of several, else the first.

        None for no name of this host, and for `auto` while nothing is hot.
        """
        found = self._names.get(name, [])
        if not found:
            return None
        if len(found) == 1 and name != AUTO:
            return found[0]
        for each in found:
            if self._hot.serves(each):
                return each
        await self._hot.look()
        cold = None if name == AUTO else found[0]
        return next((each for each in found if self._hot.serves(each)), cold)

    async def listing(self) -> list[dict[str, Any]]:
        """Models as GET /v1/models gives them: every target, its aliases, and `auto`.

        A fallback is not listed: it answers for its target.
        """
        await self._hot.look()
        fallbacks = {target.fallback for target in self._host.targets.values()}
        shown = [name for name in self._targets if name not in fallbacks]
        found = [
            self.entry(name, target, None if name == target else target)
            for target in shown
            for name in dict.fromkeys((target, *self._aliases(target)))
        ]
        hot = next((target for target in shown if self._hot.serves(target)), None)
        return found + ([self.entry(AUTO, hot, hot)] if hot else [])

    def entry(self, name: str, target: str, alias_of: str | None) -> dict[str, Any]:
        """A target under one of its names, as the list has it."""
        by = self._hot.serves(target)
        context = self._gateway.model(by.name if by else target).context
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": "lockstep",
            **({"max_model_len": context} if context else {}),
            "lockstep": {
                "state": "hot" if by else _STATES.get(self._hot.state(target), "cold"),
                "hot": by is not None,
                "kind": self._host.targets[target].kind,
                "context": context,
                "alias_of": alias_of,
                "host": self._gateway.host,
            },
        }

    def _aliases(self, name: str) -> Iterable[str]:
        return self._gateway.model(name).aliases
