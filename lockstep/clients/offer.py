"""What the gateway of a host offers to other programs: its address, and its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from lockstep.fleet.hosts import Host
from lockstep.fleet.login import typed_login
from lockstep.inventory.bound_targets import AUTO, LOOPBACK, BoundTarget
from lockstep.onhost.core.kind import Kind
from lockstep.recipes.sizing import serving
from lockstep.units.gateway_unit import local_url, open_url

# Beside the start of a cold model: a long prompt, and a long answer where a client counts all of
# it. At 1000 tok/s a prompt of 256 Ki tokens takes four minutes, at 30 tok/s an answer of 32 Ki
# tokens takes 18.
_WORK_S = 1800
# A client takes the longest answer off the context before it asks. An answer longer than this is
# rare, and a fourth of a small context is enough.
_LONGEST_ANSWER = 32768
_SHARE_OF_ANSWER = 4
# What a program for coding may count on: its own prompt and tools, some files, an answer. A model
# with less is left out of what `auto` promises, or everybody's context would be the least one's.
_AGENT_CONTEXT = 131072


@dataclass(frozen=True)
class Model:
    """One name that clients may ask for.

    Attributes:
        name: In a request's `model`.
        target: The target that answers; `auto`: whichever is hot.
        context: Tokens of a prompt and its answer together; None: the recipe leaves it to the
            engine.
    """

    name: str
    target: str
    kind: Kind = "chat"
    context: int | None = None
    images: bool = False

    @property
    def output(self) -> int | None:
        """Tokens that a client should allow an answer; None where the context is not known."""
        if self.context is None:
            return None
        return min(_LONGEST_ANSWER, self.context // _SHARE_OF_ANSWER)


@dataclass(frozen=True)
class Offer:
    """A gateway, seen from a client.

    Attributes:
        url: Its address, without a path.
        models: The one to ask where nothing is chosen, then the others.
        wait_s: Time-out for clients, seconds: longer than any request that still works takes.
        tunnel: The command that makes the address reachable; "" where it is.
        keyed: Whether it asks for a key.
        authority: Whether clients must be told to trust its certificate.
    """

    host: str
    url: str
    models: tuple[Model, ...]
    wait_s: int
    tunnel: str = ""
    keyed: bool = False
    authority: bool = False

    @property
    def chat(self) -> tuple[Model, ...]:
        """The models that answer."""
        return tuple(model for model in self.models if model.kind == "chat")

    def preferring(self, name: str) -> Offer:
        """The same with the model `name` first."""
        models = sorted(self.models, key=lambda model: model.name != name)
        return replace(self, models=tuple(models))


def of_host(host: Host, every: Sequence[Host]) -> Offer:
    """What the gateway of `host` offers; `every` host of the inventory may be a peer of it.

    Raises:
        RecipeError: a recipe whose command line cannot be built.
    """
    gateway = host.plan.settings.gateway
    names = (host.name, *gateway.peers)
    plans = {each.name: each.plan for each in every}
    asked = [plans[name] for name in names if name in plans]
    targets = [target for plan in asked for target in plan.targets if target.answers]
    wait_s = _WORK_S + max((target.data.start_timeout_s for target in targets), default=0)
    offer = Offer(host.name, local_url(host.plan.settings), tuple(_models(targets)), wait_s)
    if (opened := open_url(host.plan.settings, host.address)) is not None:
        return replace(offer, url=opened, keyed=True, authority=gateway.tls == "own")
    return replace(offer, tunnel=_tunnel(host), keyed=gateway.local_keys)


def _models(targets: Sequence[BoundTarget]) -> list[Model]:
    """Every name once. A target that several hosts have has the least of them."""
    found: dict[str, Model] = {}
    for target in targets:
        model = _model(target)
        for name in (target.name, *target.data.aliases):
            here = replace(model, name=name)
            found[name] = _least(here, found[name]) if name in found else here
    chat = [model for model in found.values() if model.kind == "chat"]
    # A context that is not known is left to the engine, and counts.
    large = [model for model in chat if (model.context or _AGENT_CONTEXT) >= _AGENT_CONTEXT]
    auto = [replace(reduce(_least, large or chat), name=AUTO, target=AUTO)] if chat else []
    return [*auto, *found.values()]


def _model(target: BoundTarget) -> Model:
    """A target, with the least context of its recipe and its fallback.

    Whether it sees is its recipe's answer: a fallback is the exception, and refuses a picture.
    """
    served = [serving(recipe, target.overrides(recipe)) for recipe in target.recipes]
    return Model(
        target.name,
        target.name,
        kind=served[0].kind,
        context=_shortest([each.context for each in served]),
        images=target.recipes[0].lockstep.vision is True,
    )


def _least(one: Model, other: Model) -> Model:
    """What both can do."""
    context = _shortest([one.context, other.context])
    return replace(one, context=context, images=one.images and other.images)


def _shortest(contexts: Sequence[int | None]) -> int | None:
    """None where one of them is not known."""
    known = [context for context in contexts if context is not None]
    return min(known) if len(known) == len(contexts) else None


def _tunnel(host: Host) -> str:
    """The command that brings the gateway's loopback port here; "" on the host itself."""
    if host.name == "@local":
        return ""
    port = host.plan.settings.gateway.port
    login = host.plan.settings.login or f"ssh {typed_login(host.name, host.data)}"
    return f"{login} -N -L {port}:{LOOPBACK}:{port}"
