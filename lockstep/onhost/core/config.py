"""The deploy's configuration of this host: its models and clusters, as in models.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, TypeVar

from lockstep.onhost.core import errors, memory_requirement, schema
from lockstep.onhost.core import topology as clusters
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind, Shape
from lockstep.onhost.core.schema import Rule, between, one_of, pattern_rule

T = TypeVar("T")
Cluster = clusters.Cluster
Need = memory_requirement.Need
_DAY_S = 86_400


def _is_percentage(text: str) -> bool:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) ?%", text)
    return match is not None and 0 < float(match[1]) <= 100


Seconds = Annotated[int, between(0, _DAY_S, "is no time", " s")]
StartTime = Annotated[int, between(1, _DAY_S, "is no time for a start", " s")]
Speed = Annotated[
    float,
    Rule("is no speed", lambda speed: 0 < speed < float("inf"), "tokens per second, more than 0"),
]
Share = Annotated[
    str,
    Rule("is no share of the accepted result", _is_percentage, '"90 %": more than 0, at most 100'),
]
# As clients write it ("gpt-4o", "org/model:latest").
Alias = Annotated[
    str,
    pattern_rule(
        r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}",
        "is not a name for a model",
        "letters, digits and '._:/@-', at most 128",
    ),
]
_Sense = Annotated[
    str,
    Rule(
        "has no record of answers any more",
        lambda sense: sense != "record",
        "answers, off",
        remedy='Write "off" for a model that talks nonsense by nature.',
    ),
    one_of(("answers", "off")),
]


@dataclass(frozen=True)
class Minimum:
    """The minimum of a model. A deploy that falls below it restores the previous state.

    Attributes:
        decode_tok_s: Least decode rate of one request, tok/s, as `lockstep bench` measures it.
        not_below: Share of the accepted result on that host ("90 %").
        sense: Whether its answers must make sense where clients ask, too, at a listener.
    """

    decode_tok_s: Speed | None = None
    not_below: Share | None = None
    sense: bool = False

    @property
    def share(self) -> float | None:
        """The share `not_below` as a number from 0 to 1."""
        return None if self.not_below is None else float(self.not_below.rstrip(" %")) / 100

    @property
    def has_speed(self) -> bool:
        """True if it demands a speed."""
        return (self.decode_tok_s, self.not_below) != (None, None)


_Minimum = Annotated[
    Minimum,
    Rule(
        "demands nothing", lambda minimum: minimum != Minimum(), "decode_tok_s, not_below or sense"
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of one model.

    Attributes:
        start_timeout_s: Limit from start to the first generated token, seconds.
        sense: Check for nonsense at a start: "answers" asks questions with one right answer; "off"
            asks nothing.
        minimum: Least speed of the recipe, measured by a deploy that restarts it. A fallback has
            none.
        aliases: Further names of it at the gateway, as clients write them in `model`. A fallback
            answers to them for its model, and has none.
    """

    start_timeout_s: StartTime = 1800
    sense: _Sense = "answers"
    minimum: _Minimum | None = None
    aliases: tuple[Alias, ...] = ()

    @property
    def settings_alone(self) -> ModelSettings:
        """These settings alone."""
        return ModelSettings(
            **{field.name: getattr(self, field.name) for field in fields(ModelSettings)}
        )


@dataclass(frozen=True)
class Model(ModelSettings):
    """One name that switch.sh accepts, as the deploy bound it on this host.

    The deploy makes it, `units/model_variants.py`; nothing else decides what is served.

    Attributes:
        url: Address for clients.
        engine_url: Address of the engine itself. It differs if the gateway has the port, because it
            merges roles or asks for the API key.
        weights: Ids of models on the hub, or full paths, that must be here before a start.
        kind: Kind of request that the model answers.
        load_free_gib: MemFree below which the page cache is dropped while the engine loads.
        minimum_loading_gib, minimum_serving_gib: MemAvailable below which the engine is ended.
        tools: Whether it has a parser of tool calls.
        logprobs: Whether it may be asked for log-probabilities.
        cluster: Sparks that run it together; ranks above 0 may have no `url`.
        alike: Hash of what the deploy made of it, without the words for one rank.
        not_at_boot: Why it must not start again on its own after a boot.
        evens: Shapes of conversations that the gateway evens out for it: those that template and
            engine refuse by its recipe, or else by the lock's reading of the template.
        context: Tokens of one request with its answer; None if unknown.
    """

    name: str
    unit: str
    url: str
    served_name: str
    memory_gib: float
    recipe: str = ""
    engine: str = ""
    container: str | None = None
    image: str | None = None
    fallback: str | None = None
    api_key_file: str | None = None
    engine_url: str | None = None
    test_question_timeout_s: float = 600.0
    weights: tuple[str, ...] = ()
    tools: bool = False
    logprobs: bool = True
    cluster: str | None = None
    alike: str = ""
    not_at_boot: str | None = None
    memory_share: float = 0.0
    memory_of_total: bool = False
    memory_beside_gib: float = 0.0
    kind: Kind = "chat"
    load_free_gib: float = 8.0
    minimum_loading_gib: float = 0.0
    minimum_serving_gib: float = 0.0
    evens: tuple[Shape, ...] = ()
    context: int | None = None

    @property
    def at_engine_address(self) -> Model:
        """The model with its engine's own address and no key; unchanged without that address."""
        return replace(self, url=self.engine_url, api_key_file=None) if self.engine_url else self

    @property
    def memory_need(self) -> Need:
        """The unified memory that the model needs before it starts."""
        return Need(
            self.memory_gib,
            self.memory_share,
            self.memory_of_total,
            self.memory_beside_gib,
            max(self.minimum_loading_gib, self.minimum_serving_gib),
        )


@dataclass(frozen=True)
class HostConfig:
    """All models of this host, and the clusters that it is a member of, by name.

    `max_clock_mhz` is the cap of the GPU's clock, None without one. `boot` is what becomes hot
    after a boot: `none`, `last` or the name of a model.

    The deploy writes these fields to models.json, but for defaults (`schema.values_of`).
    """

    name: str
    models: Mapping[str, Model]
    webui_unit: str = "open-webui.service"
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    max_clock_mhz: int | None = None
    boot: str = "none"

    def model(self, name: str) -> Model:
        """Return the model called `name`; raise Problem (wrong use) with the known names."""
        if name not in self.models:
            known_names = ", ".join(self.models) or "none is configured"
            message = f"unknown model {name!r}; known models: {known_names}"
            raise errors.Problem(message, errors.EXIT_USAGE)
        return self.models[name]

    def other_models(self, name: str) -> list[Model]:
        """Return every model that runs under another unit than `name` does."""
        unit = self.model(name).unit
        return [model for model in self.models.values() if model.unit != unit]

    def cluster_of_model(self, name: str) -> Cluster | None:
        """Return the cluster of the model called `name`; None if this host alone runs it."""
        cluster = self.model(name).cluster
        return self.clusters[cluster] if cluster else None


def load_host(path: Path) -> HostConfig:
    """Read models.json; raise Problem (wrong use) with the file, the key and the value."""
    host = read_dataclass(HostConfig, path)
    for name, cluster in host.clusters.items():
        if not 0 <= cluster.rank < len(cluster.members):
            raise _unusable(
                f"clusters.{name} has no member of this host's rank",
                where=str(path),
                found=str(cluster.rank),
                allowed=f"0 to {len(cluster.members) - 1}",
            )
    for model in host.models.values():
        if model.cluster and model.cluster not in host.clusters:
            raise _unusable(
                f"models.{model.name}.cluster is not known",
                where=str(path),
                found=repr(model.cluster),
                allowed=", ".join(host.clusters) or "none",
            )
    return host


def read_dataclass(kind: type[T], path: Path) -> T:
    """Read a dataclass that the deploy wrote as JSON; raise Problem with file, key and value."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(errors.why(error), where=str(path)) from error
    except ValueError as error:
        raise _unusable(f"not JSON: {error}", where=str(path)) from error
    # Programs come before their file: a file of an earlier deploy may have other keys.
    return schema.build(kind, data, where=str(path), error=_unusable, strict=False)


def _unusable(
    summary: str, *, where: str, found: str = "", allowed: str = "", **_: str
) -> errors.Problem:
    message = f"{where}: {schema.fault_sentence(summary, found, allowed)}"
    remedy = "Remedy: run the deploy again, it writes this file."
    return errors.Problem(f"{message}. {remedy}", errors.EXIT_USAGE)
