"""The offer of a host's gateway to other programs: its address and its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from lockstep.fleet.hosts import Host
from lockstep.fleet.login import typed_login
from lockstep.inventory.bound_models import AUTO, LOOPBACK, BoundModel
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.units.gateway_unit import local_url, open_url

# Seconds beside the start of a cold model, for a long prompt and a long answer, since some clients
# count the whole answer. At 1000 tok/s a prompt of 256 Ki tokens takes four minutes, at 30 tok/s an
# answer of 32 Ki tokens takes 18.
_WORK_S = 1800
# A client takes the longest answer off the context before it asks. Longer answers than this are
# rare, and a fourth of a small context is enough.
_LONGEST_ANSWER = 32768
_SHARE_OF_ANSWER = 4
# The context on which a program for coding may count: its own prompt and tools, some files, an
# answer. `auto` leaves smaller models out of its promise, so that their context is not everybody's.
_AGENT_CONTEXT = 131072


@dataclass(frozen=True)
class OfferedModel:
    """One name that clients may ask for.

    Attributes:
        name: The value of a request's `model`.
        model_name: The model that answers; `auto`: the hot one.
        context: Tokens of a prompt and its answer together; None: the recipe leaves it to the
            engine.
    """

    name: str
    model_name: str
    kind: Kind = "chat"
    context: int | None = None
    images: bool = False

    @property
    def output(self) -> int | None:
        """The tokens that a client should allow an answer, or None if the context is unknown."""
        if self.context is None:
            return None
        return min(_LONGEST_ANSWER, self.context // _SHARE_OF_ANSWER)


@dataclass(frozen=True)
class GatewayOffer:
    """A gateway, seen from a client.

    Attributes:
        url: Its address, without a path.
        models: The model to ask by default, then the others.
        wait_s: Time-out for clients, seconds: longer than any request that still works takes.
        tunnel: The command that makes the address reachable; "" if it is reachable.
        has_key: True if the gateway asks for a key.
        authority: True if clients must be told to trust the gateway's certificate.
    """

    host: str
    url: str
    models: tuple[OfferedModel, ...]
    wait_s: int
    tunnel: str = ""
    has_key: bool = False
    authority: bool = False

    @property
    def chat(self) -> tuple[OfferedModel, ...]:
        """The models that chat."""
        return tuple(model for model in self.models if model.kind == "chat")

    def preferring(self, name: str) -> GatewayOffer:
        """Return the same offer with the model `name` first."""
        models = sorted(self.models, key=lambda model: model.name != name)
        return replace(self, models=tuple(models))


def of_host(host: Host, every: Sequence[Host]) -> GatewayOffer:
    """Return the offer of the gateway of `host`; `every` host of the inventory may be its peer.

    Raises:
        RecipeError: a recipe's command line cannot be built.
    """
    gateway = host.plan.settings.gateway
    names = (host.name, *gateway.peers)
    plans = {known_host.name: known_host.plan for known_host in every}
    asked_plans = [plans[name] for name in names if name in plans]
    models = [model for plan in asked_plans for model in plan.models if model.answers]
    wait_s = _WORK_S + max((model.data.start_timeout_s for model in models), default=0)
    offer = GatewayOffer(
        host.name, local_url(host.plan.settings), tuple(_offered_models(models)), wait_s
    )
    if (url := open_url(host.plan.settings, host.address)) is not None:
        return replace(offer, url=url, has_key=True, authority=gateway.tls == "own")
    return replace(offer, tunnel=_tunnel(host), has_key=gateway.local_keys)


def _offered_models(models: Sequence[BoundModel]) -> list[OfferedModel]:
    """Return the offer of each name once; a model of several hosts gets their smallest values."""
    offered_models: dict[str, OfferedModel] = {}
    for model in models:
        offered_model = _offered_model(model)
        for name in (model.name, *model.data.aliases):
            present_model = replace(offered_model, name=name)
            offered_models[name] = (
                _least(present_model, offered_models[name])
                if name in offered_models
                else present_model
            )
    chat = [
        offered_model for offered_model in offered_models.values() if offered_model.kind == "chat"
    ]
    # An unknown context counts as large, because the engine decides it.
    large = [
        offered_model
        for offered_model in chat
        if (offered_model.context or _AGENT_CONTEXT) >= _AGENT_CONTEXT
    ]
    auto = [replace(reduce(_least, large or chat), name=AUTO, model_name=AUTO)] if chat else []
    return [*auto, *offered_models.values()]


def _offered_model(model: BoundModel) -> OfferedModel:
    """Return the offer of a model, with the smaller context of its recipe and its fallback.

    Only the recipe decides whether the model sees. A fallback is the exception, and refuses a
    picture.
    """
    servings = [model.serving(recipe) for recipe in model.recipes]
    return OfferedModel(
        model.name,
        model.name,
        kind=servings[0].kind,
        context=_shortest([recipe_serving.context for recipe_serving in servings]),
        images=model.recipes[0].lockstep.vision is True,
    )


def _least(first: OfferedModel, second: OfferedModel) -> OfferedModel:
    """Return the abilities that both models have."""
    context = _shortest([first.context, second.context])
    return replace(first, context=context, images=first.images and second.images)


def _shortest(contexts: Sequence[int | None]) -> int | None:
    """Return the smallest context, or None if one is unknown."""
    known_contexts = [context for context in contexts if context is not None]
    return min(known_contexts) if len(known_contexts) == len(contexts) else None


def _tunnel(host: Host) -> str:
    """Return the command that brings the gateway's loopback port here; "" on the host itself."""
    if host.name == "@local":
        return ""
    port = host.plan.settings.gateway.port
    login = host.plan.settings.login or f"ssh {typed_login(host.name, host.data)}"
    return f"{login} -N -L {port}:{LOOPBACK}:{port}"
