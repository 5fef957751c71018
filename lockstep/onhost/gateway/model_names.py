"""Model names that requests may use, and the models behind them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from lockstep.onhost.core import config
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel

#: The name for the hot model, whichever it is.
AUTO = "auto"
_STATES = {"hot": "hot", "loading": "loading", "restarting": "loading"}


class Models:
    """The models that answer at this host: of a cluster, only those of rank 0."""

    def __init__(
        self, gateway: GatewayConfiguration, host: config.HostConfig, hot: HotModel
    ) -> None:
        self._gateway = gateway
        self._host = host
        self._hot = hot
        self._since = int(time.time())
        self._models = [name for name, model in host.models.items() if model.engine_url]
        self._names: dict[str, list[str]] = {}
        # A model's own name beats an alias, which beats the engine's name for its checkpoint,
        # which beats the hub's name.
        for name in self._models:
            self._names[name] = [name]
        name_sources: tuple[Callable[[str], Iterable[str]], ...] = (
            lambda name: host.models[name].aliases,
            lambda name: (host.models[name].served_name,),
            lambda name: host.models[name].weights[:1],
        )
        for names in name_sources:
            names_taken = set(self._names)
            for name in self._models:
                for other_name in names(name):
                    if other_name not in names_taken:
                        self._names.setdefault(other_name, []).append(name)
        self._names.setdefault(AUTO, self._models)

    async def model(self, name: str) -> str | None:
        """Return the model of a name: the hot one of several, else the first.

        None for a name unknown to this host, and for `auto` while nothing is hot.
        """
        models = self._names.get(name, [])
        if not models:
            return None
        if len(models) == 1 and name != AUTO:
            return models[0]
        for candidate in models:
            if self._hot.serving_variant(candidate):
                return candidate
        await self._hot.refresh_unit_states()
        cold = None if name == AUTO else models[0]
        return next(
            (candidate for candidate in models if self._hot.serving_variant(candidate)), cold
        )

    async def listing(self) -> list[dict[str, Any]]:
        """Return models in the form of GET /v1/models: every model, its aliases, and `auto`.

        Fallbacks are not listed, because they answer for their model.
        """
        await self._hot.refresh_unit_states()
        fallbacks = {model.fallback for model in self._host.models.values()}
        shown_names = [name for name in self._models if name not in fallbacks]
        entries = [
            self.entry(name, model, None if name == model else model)
            for model in shown_names
            for name in dict.fromkeys((model, *self._host.models[model].aliases))
        ]
        hot = next((model for model in shown_names if self._hot.serving_variant(model)), None)
        return entries + ([self.entry(AUTO, hot, hot)] if hot else [])

    def entry(self, name: str, model: str, alias_of: str | None) -> dict[str, Any]:
        """Return a model's entry of the list under one of its names."""
        by = self._hot.serving_variant(model)
        context = (by or self._host.models[model]).context
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": "lockstep",
            **({"max_model_len": context} if context else {}),
            "lockstep": {
                "state": "hot" if by else _STATES.get(self._hot.state_of(model), "cold"),
                "hot": by is not None,
                "kind": self._host.models[model].kind,
                "context": context,
                "alias_of": alias_of,
                "host": self._gateway.host,
            },
        }
