"""What the deploy says of this host: its targets and clusters, as targets.json holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

from lockstep.onhost.core import errors, need, schema
from lockstep.onhost.core import topology as clusters
from lockstep.onhost.core.kind import Kind

T = TypeVar("T")
Cluster = clusters.Cluster
Need = need.Need


@dataclass(frozen=True)
class Target:
    """One name that switch.sh accepts, as the deploy bound it on this host.

    `url` is where clients ask, `engine_url` the engine itself; they differ where the gateway has
    the port, which merges roles or asks for the API key.
    `weights` are ids of models on the hub, or full paths, that must be here before a start.
    `kind` says what the model is asked for.
    `floor_tok_s`, `floor_share` and `floor_sense` are what a deploy must not fall below (`floor`).
    `load_free_gib` is the MemFree below which the page cache is dropped while it loads, the other
    floors are the MemAvailable below which it is ended.
    `sense` is how nonsense is told: by right "answers", by the "record" of its own, or "off".
    `tools` says whether it has a parser of tool calls, `logprobs` whether it may be asked for
    log-probabilities. `identity` is the hash of what it runs, which the record belongs to.
    `cluster` names the Sparks that run it together; the others than rank 0 may have no `url`.
    `alike` is the hash of what the deploy made of it, without the rank's own words.
    `not_at_boot` is why it must not come back by itself after a boot.
    """

    name: str
    unit: str
    url: str
    model: str
    memory_gib: float
    start_timeout_s: float
    recipe: str = ""
    engine: str = ""
    container: str | None = None
    image: str | None = None
    fallback: str | None = None
    api_key_file: str | None = None
    engine_url: str | None = None
    canary_timeout_s: float = 600.0
    weights: tuple[str, ...] = ()
    floor_tok_s: float | None = None
    floor_share: float | None = None
    floor_sense: bool = False
    sense: str = "off"
    tools: bool = False
    logprobs: bool = True
    identity: str = ""
    cluster: str | None = None
    alike: str = ""
    not_at_boot: str | None = None
    memory_share: float = 0.0
    memory_of_total: bool = False
    memory_beside_gib: float = 0.0
    kind: Kind = "chat"
    load_free_gib: float = 8.0
    floor_loading_gib: float = 0.0
    floor_serving_gib: float = 0.0

    @property
    def itself(self) -> Target:
        """The same, asked at the engine, which wants no key; as it is where that is elsewhere."""
        return replace(self, url=self.engine_url, api_key_file=None) if self.engine_url else self

    @property
    def need(self) -> Need:
        """What it needs of the unified memory before it starts."""
        return Need(
            self.memory_gib,
            self.memory_share,
            self.memory_of_total,
            self.memory_beside_gib,
            max(self.floor_loading_gib, self.floor_serving_gib),
        )


_HAS_RANK = schema.Rule(
    "has no member of this host's rank",
    lambda cluster: 0 <= cluster.rank < len(cluster.members),
    "rank: 0 for the first of members",
)


@dataclass(frozen=True)
class Host:
    """All targets of this host, and the clusters that it is a member of, by name.

    `max_clock_mhz` is the cap of the GPU's clock, None without one. `boot` is what becomes hot
    after a boot: `none`, `last` or the name of a target.

    The deploy writes it to targets.json, field by field.
    """

    name: str
    targets: Mapping[str, Target]
    webui_unit: str = "open-webui.service"
    clusters: Mapping[str, Annotated[Cluster, _HAS_RANK]] = field(default_factory=dict)
    max_clock_mhz: int | None = None
    boot: str = "none"

    def target(self, name: str) -> Target:
        """The target called `name`; Problem (wrong use) names the known ones."""
        if name not in self.targets:
            known = ", ".join(self.targets) or "none is configured"
            said = f"unknown target {name!r}; known targets: {known}"
            raise errors.Problem(said, errors.EXIT_USAGE)
        return self.targets[name]

    def others(self, name: str) -> list[Target]:
        """Every target that runs under another unit than `name` does."""
        unit = self.target(name).unit
        return [target for target in self.targets.values() if target.unit != unit]

    def cluster(self, name: str) -> Cluster | None:
        """The cluster that runs the target called `name`; None for one of this host alone."""
        cluster = self.target(name).cluster
        return self.clusters[cluster] if cluster else None


def load_host(path: Path) -> Host:
    """Read targets.json. Problem (wrong use) names the file, the key and what was found."""
    host = read(Host, path)
    for target in host.targets.values():
        if target.cluster and target.cluster not in host.clusters:
            raise _unusable(
                f"targets.{target.name}.cluster is not known",
                where=str(path),
                found=repr(target.cluster),
                allowed=", ".join(host.clusters) or "none",
            )
    return host


def read(kind: type[T], path: Path) -> T:
    """A dataclass that the deploy wrote as JSON. Problem (wrong use) names file, key and value."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(errors.why(error), where=str(path)) from error
    except ValueError as error:
        raise _unusable(f"not JSON: {error}", where=str(path)) from error
    # Programs come before their file: one that an earlier deploy wrote may have other keys.
    return schema.build(kind, data, where=str(path), error=_unusable, strict=False)


def _unusable(
    what: str, *, where: str, found: str = "", allowed: str = "", **_: str
) -> errors.Problem:
    said = f"{where}: {schema.sentence(what, found, allowed)}"
    remedy = "Remedy: run the deploy again, it writes this file."
    return errors.Problem(f"{said}. {remedy}", errors.EXIT_USAGE)
