"""The catalogue's facts about checkpoints and machines, from `catalogue/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from lockstep.checkpoints.architecture import Architecture, Layers, is_sound
from lockstep.core.errors import CatalogueError
from lockstep.core.figures import Date, Figure, Text, positive
from lockstep.core.yamlfile import part, place, read_mapping
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import ImpliedFields, Rule, one_of

GIB = 2**30
#: The machine of a host of which nothing else is known, by its name in ``hardware.yaml``.
USUAL = "dgx-spark"

_DecimalGb = Annotated[Figure, ImpliedFields({"quantity": "weights", "unit": "GB"}), positive]
_Gib = Annotated[Figure, ImpliedFields({"quantity": "memory", "unit": "GiB"}), positive]
_Share = Annotated[Figure, ImpliedFields({"quantity": "share", "unit": "share"}), positive]
_Bandwidth = Annotated[Figure, ImpliedFields({"quantity": "bandwidth", "unit": "GB/s"}), positive]
_End = Annotated[str, one_of(("least", "low", "high", "beyond"))]
_Layers = Annotated[Layers, Rule("lacks a size", is_sound, "count and the sizes of its kind")]


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A checkpoint. None means that nobody published the value; nothing here is a guess.

    Attributes:
        id: Hugging Face id.
        family: Checkpoints of one family are alternatives to each other.
        weights_gb: Size as stored (decimal GB).
        mtp_gb: Part of that size for a multi-token-prediction head, loaded only where it drafts.
        architecture: Shapes that decide the KV cache.
        quantisation: Format in which the weights are stored.
        vision: Whether a vision tower is in the weights.
        token_gb: Least part of the weights that decoding one token reads (decimal GB).
    """

    id: str
    family: Text | None = None
    weights_gb: _DecimalGb | None = None
    mtp_gb: _DecimalGb | None = None
    architecture: Architecture | None = None
    quantisation: Text | None = None
    vision: bool | None = None
    token_gb: _DecimalGb | None = None

    def weights_gib(self, *, head: bool = True) -> float | None:
        """Return the size as stored, in GiB; without its prediction head where not ``head``."""
        if self.weights_gb is None:
            return None
        unused_gib = 0.0 if head or self.mtp_gb is None else float(self.mtp_gb.value)
        return (float(self.weights_gb.value) - unused_gib) * 1e9 / GIB


@dataclass(frozen=True, slots=True)
class Hardware:
    """A kind of machine; every figure keeps its source.

    MemTotal of its kits is from `memory_total_gib`, which decides the fit, to `memory_most_gib`.
    """

    compute_capability: Text
    memory_total_gib: _Gib
    memory_most_gib: _Gib
    system_gib: _Gib
    watermark_gib: _Gib
    reserve_gib: _Gib
    engine_start_gib: _Gib
    highest_utilization: _Share
    bandwidth_gb_s: _Bandwidth
    overhead_gib: Mapping[str, Mapping[_End, _Gib]]

    def overhead(self, engine: str, end: Literal["least", "low", "high"]) -> Figure:
        """Return what an engine holds beside weights and KV cache: the better or worse case seen.

        "least" is the least of any model, or the better case where there is no such figure.
        """
        figures = self.overhead_gib.get(engine, {})
        better = figures.get("low", self.engine_start_gib)
        return figures.get(end, better if end == "least" else self.engine_start_gib)

    def beyond_gib(self, engine: str, way: str = "") -> float:
        """Return what an engine takes beyond its share once it serves; 0 where nobody saw any.

        A figure for this way goes before the usual one.
        """
        usual = self.overhead_gib.get(engine, {})
        figure = self.overhead_gib.get(f"{engine} {way}", usual).get("beyond")
        return float(figure.value) if figure else 0.0

    def gib(self, name: str) -> float:
        """Return the number of one of the figures."""
        figure: Figure = getattr(self, name)
        return float(figure.value)

    def at_rest_gib(self, total: float) -> float:
        """Return MemAvailable of a machine with ``total`` GiB after our deploy, with no engine."""
        return total - self.gib("system_gib") - self.gib("watermark_gib")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All models by id, and machines by name.

    `types` are families by name, and the `model_type` that the configurations of each have.
    """

    checkpoints: Mapping[str, KnownCheckpoint] = field(default_factory=dict)
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    def checkpoint(self, identifier: str) -> KnownCheckpoint:
        """Return the facts of a checkpoint; an empty `KnownCheckpoint` where nothing is known."""
        return self.checkpoints.get(identifier, KnownCheckpoint(identifier))

    def machine_with(self, memory_gib: float) -> str:
        """Return the name of the kind of machine whose MemTotal is nearest to ``memory_gib``."""
        totals = {name: kind.gib("memory_total_gib") for name, kind in self.hardware.items()}
        return min(totals, key=lambda name: abs(totals[name] - memory_gib))


@cache
def load_knowledge(catalogue: Path) -> Knowledge:
    """Read ``checkpoints.yaml`` and ``hardware.yaml`` of a catalogue folder, once.

    CatalogueError where one is unreadable, has an unknown key, or a figure without source or date.
    """
    path = catalogue / "checkpoints.yaml"
    document = read_mapping(path, CatalogueError)
    file = schema.build(_File, document, where=str(path), error=CatalogueError)
    return Knowledge(
        {
            name: _checkpoint(name, raw, file.architectures, path)
            for name, raw in file.checkpoints.items()
        },
        _hardware(catalogue / "hardware.yaml"),
        {name: family.model_type for name, family in file.families.items()},
    )


@dataclass(frozen=True, kw_only=True)
class Shapes(Architecture):
    """An entry of `architectures`, with where it was read."""

    layers: Annotated[tuple[_Layers, ...], Rule("names no layers", bool)]
    source: Text
    date: Date


@dataclass(frozen=True, slots=True)
class OwnCheckpoint(KnownCheckpoint):
    """A checkpoint as an owner's recipe describes it: one of `checkpoints`, its shapes with it."""

    architecture: Shapes | None = None


@dataclass(frozen=True)
class _Family:
    """The `model_type` of a family's checkpoints in `config.json`, with where it was read."""

    model_type: Text
    source: Text
    date: Date


@dataclass(frozen=True)
class _File:
    """The content of ``checkpoints.yaml``; an entry of `checkpoints` is read when the shapes are
    known.
    """

    families: Mapping[str, _Family] = field(default_factory=dict)
    architectures: Mapping[str, Shapes] = field(default_factory=dict)
    checkpoints: Mapping[str, Any] = field(default_factory=dict)


def _checkpoint(
    name: str, raw: Any, shapes: Mapping[str, Architecture], path: Path
) -> KnownCheckpoint:
    shape = raw.get("architecture") if isinstance(raw, dict) else None
    if shape is not None and shape not in shapes:
        raise CatalogueError(
            f"{name} refers to an architecture that is not there",
            where=place(str(path), raw, "architecture"),
            found=repr(shape),
            allowed=", ".join(shapes),
        )
    if isinstance(raw, dict):
        raw = part(raw, [key for key in raw if key != "architecture"])
    implied_fields = {"id": name, "architecture": shapes[shape] if shape else None}
    return schema.build(
        KnownCheckpoint,
        raw,
        where=str(path),
        key=f"checkpoints.{name}",
        error=CatalogueError,
        implied_fields=implied_fields,
    )


def _hardware(path: Path) -> dict[str, Hardware]:
    return {
        machine: schema.build(Hardware, raw, where=str(path), key=machine, error=CatalogueError)
        for machine, raw in read_mapping(path, CatalogueError).items()
    }
