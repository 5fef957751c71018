"""What the catalogue knows about checkpoints and machines; data stands in `catalogue/*.yaml`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lockstep.core.errors import CatalogueError, RecipeError
from lockstep.core.figures import Figure, parse_figure
from lockstep.core.yamlfile import place, read_mapping, refuse_unknown_keys
from lockstep.models.architecture import Architecture, from_catalogue

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Model:
    """One checkpoint. None means that nobody published it; nothing here is a guess.

    Attributes:
        id: Hugging Face id.
        family: Checkpoints of one family are alternatives to each other.
        weights: Size as stored (decimal GB).
        architecture: Shapes that decide the KV cache.
        quantisation: How the weights are stored.
        vision: Whether a vision tower is in the weights.
        mtp_head: Whether a multi-token-prediction head is in the weights.
        token_gb: What decoding one token reads of the weights at least (decimal GB).
    """

    id: str
    family: str | None = None
    weights: Figure | None = None
    architecture: Architecture | None = None
    quantisation: str | None = None
    vision: bool | None = None
    mtp_head: bool | None = None
    token_gb: Figure | None = None

    @property
    def weights_gib(self) -> float | None:
        """Size as stored, in GiB."""
        return float(self.weights.value) * 1e9 / GIB if self.weights else None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of machine; every figure keeps its source."""

    compute_capability: str
    memory_total_gib: Figure
    system_gib: Figure
    reserve_gib: Figure
    engine_start_gib: Figure
    highest_utilization: Figure
    bandwidth_gb_s: Figure
    overhead_gib: Mapping[str, Mapping[str, Figure]]

    def overhead(self, engine: str | None, end: Literal["low", "high"]) -> Figure:
        """What an engine holds beside weights and KV cache; of one that is none of ours, the most.

        Args:
            engine: Its name.
            end: The better or the worse observed case.
        """
        known = [self.overhead_gib.get(engine, {})] if engine else self.overhead_gib.values()
        figures = [figures.get(end, self.engine_start_gib) for figures in known]
        return (min if end == "low" else max)(figures, key=lambda figure: float(figure.value))

    def gib(self, name: str) -> float:
        """The number of one of the figures."""
        figure: Figure = getattr(self, name)
        return float(figure.value)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Models by id, and machines by name."""

    models: Mapping[str, Model] = field(default_factory=dict)
    hardware: Mapping[str, Hardware] = field(default_factory=dict)

    def model(self, identifier: str) -> Model:
        """What is known of a checkpoint; an empty `Model` where nothing is."""
        return self.models.get(identifier, Model(identifier))


def load_knowledge(catalogue: Path) -> Knowledge:
    """Read ``models.yaml`` and ``hardware.yaml`` of a catalogue folder.

    Raises:
        CatalogueError: unreadable, an unknown key, or a figure without source or date.
    """
    return Knowledge(
        _models(catalogue / "models.yaml"),
        _hardware(catalogue / "hardware.yaml"),
    )


def _models(path: Path) -> dict[str, Model]:
    document = read_mapping(path, CatalogueError)
    refuse_unknown_keys(document, ("architectures", "models"), str(path), "it", CatalogueError)
    shapes = {
        name: _architecture(raw, path) for name, raw in document.get("architectures", {}).items()
    }
    return {
        name: _model(name, raw, shapes, path) for name, raw in document.get("models", {}).items()
    }


def _architecture(raw: Any, path: Path) -> Architecture:
    raw = _mapping(raw, path)
    allowed = ("source", "date", "context", "heads", "layers")
    refuse_unknown_keys(raw, allowed, str(path), "an architecture", CatalogueError)
    return from_catalogue(raw, str(path), f"{raw.get('source')} ({raw.get('date')})")


def _model(name: str, raw: Any, shapes: Mapping[str, Architecture], path: Path) -> Model:
    raw = _mapping(raw, path)
    texts = ("family", "architecture", "quantisation", "vision", "mtp_head")
    allowed = (*texts, "weights_gb", "token_gb")
    refuse_unknown_keys(raw, allowed, str(path), name, CatalogueError)
    shape = raw.get("architecture")
    if shape is not None and shape not in shapes:
        raise CatalogueError(
            f"{name} refers to an architecture that is not there",
            where=place(str(path), raw, "architecture"),
            found=repr(shape),
            allowed=", ".join(shapes),
        )
    weights, token = raw.get("weights_gb"), raw.get("token_gb")
    return Model(
        id=name,
        family=raw.get("family"),
        weights=None if weights is None else _figure(weights, path, name, "GB"),
        architecture=shapes.get(shape) if shape else None,
        quantisation=raw.get("quantisation"),
        vision=raw.get("vision"),
        mtp_head=raw.get("mtp_head"),
        token_gb=None if token is None else _figure(token, path, name, "GB"),
    )


def _hardware(path: Path) -> dict[str, Hardware]:
    machines = {}
    names = tuple(item.name for item in fields(Hardware))
    for machine, raw in read_mapping(path, CatalogueError).items():
        raw = _mapping(raw, path)
        refuse_unknown_keys(raw, names, str(path), machine, CatalogueError)
        missing = [name for name in names if name not in raw]
        if missing:
            raise CatalogueError(
                f"{machine} lacks figures", where=str(path), found=", ".join(missing)
            )
        figures = {name: _figure(raw[name], path, name, _unit(name)) for name in names[1:-1]}
        overhead = {
            engine: _overhead(ends, path, engine)
            for engine, ends in _mapping(raw["overhead_gib"], path).items()
        }
        capability = str(raw["compute_capability"])
        machines[machine] = Hardware(capability, **figures, overhead_gib=overhead)
    return machines


def _overhead(raw: Any, path: Path, engine: str) -> dict[str, Figure]:
    raw = _mapping(raw, path)
    refuse_unknown_keys(raw, ("low", "high"), str(path), engine, CatalogueError)
    return {end: _figure(figure, path, f"{engine}.{end}", "GiB") for end, figure in raw.items()}


def _unit(name: str) -> str:
    units = {"_gib": "GiB", "_gb_s": "GB/s"}
    return next((unit for ending, unit in units.items() if name.endswith(ending)), "share")


def _figure(raw: Any, path: Path, name: str, unit: str) -> Figure:
    try:
        figure = parse_figure(raw, str(path), name, what=name, unit=unit)
    except RecipeError as fault:
        raise CatalogueError(fault.what, where=fault.where, found=fault.found) from fault
    if not math.isfinite(float(figure.value)):
        raise CatalogueError(f"{name} must be finite", where=str(path))
    return figure


def _mapping(raw: Any, path: Path) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise CatalogueError("an entry must be a mapping", where=str(path), found=repr(raw)[:60])
    return raw
