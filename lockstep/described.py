"""What one version of an engine knows, as it said itself: `catalogue/engines/*.json`.

The files are written by the programs in `lockstep/engines/`, run with an installed engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from packaging.version import InvalidVersion, Version

from lockstep import flags
from lockstep.argv import is_flag
from lockstep.errors import CatalogueError

_KEYS = {"engine", "version", "flags", "environment", "registries"}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A flag, value or variable that this version does not know.

    Attributes:
        kind: "flag", "value" or "variable".
        name: The flag or variable.
        value: The value that is not allowed, "" for the other kinds.
        nearest: What it may have meant, "" where nothing is near.
    """

    kind: str
    name: str
    value: str = ""
    nearest: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """One engine version.

    Attributes:
        engine: "vllm" or "sglang".
        version: Its release.
        flags: Every spelling → the values it takes, None for any.
        environment: Variables it reads.
        registries: Names it accepts where the parser itself has no list: by flag, and
            "speculative-config.method".
    """

    engine: str
    version: Version
    flags: Mapping[str, tuple[str, ...] | None]
    environment: frozenset[str]
    registries: Mapping[str, tuple[str, ...]]

    def unknown(self, argv: Sequence[str], environment: Mapping[str, str]) -> list[Unknown]:
        """Everything in a command line and environment that this version does not know."""
        found = [item for name, values in _pairs(argv) for item in self._flag(name, values)]
        prefix = f"{self.engine.upper()}_"
        for name in environment:
            if name.startswith(prefix) and name not in self.environment:
                found.append(Unknown("variable", name, nearest=_nearest(name, self.environment)))
        return [*found, *self._method(argv)]

    def _flag(self, name: str, values: Sequence[str]) -> Iterator[Unknown]:
        name = name.split(".", 1)[0]
        if name.startswith("-O") and name != "-O":
            return  # -O3 is short for --optimization-level 3
        if name not in self.flags:
            name = self._completed(name)
        if name not in self.flags:
            yield Unknown("flag", name, nearest=_nearest(name, self.flags))
            return
        allowed = self.flags[name] or self.registries.get(name)
        if not allowed:
            return
        folded = {item.lower() for item in allowed}
        for value in values:
            if value.lower() not in folded:
                yield Unknown("value", name, value, _nearest(value, allowed))

    def _completed(self, name: str) -> str:
        """Both engines' parsers take the start of a flag where only one flag starts so."""
        longer = [flag for flag in self.flags if name.startswith("--") and flag.startswith(name)]
        return longer[0] if len(longer) == 1 else name

    def _method(self, argv: Sequence[str]) -> Iterator[Unknown]:
        """The speculative method hides inside JSON."""
        allowed = self.registries.get("speculative-config.method")
        text = flags.value_of(argv, ("--speculative-config", "-sc"))
        if not allowed or not text:
            return
        method = flags.json_value("--speculative-config", text).get("method")
        if method is not None and str(method) not in allowed:
            near = _nearest(str(method), allowed)
            yield Unknown("value", "--speculative-config method", str(method), near)


def load_descriptions(folder: Path) -> tuple[Description, ...]:
    """Every description in a folder; () where there is none.

    Raises:
        CatalogueError: a file that is not such a description.
    """
    return tuple(_load(path) for path in sorted(folder.glob("*.json")))


def _load(path: Path) -> Description:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as fault:
        raise CatalogueError("cannot be read", where=str(path), found=str(fault)) from fault


def parse(text: str, where: str) -> Description:
    """A description from its JSON text.

    Raises:
        CatalogueError: the text is not such a description.
    """
    try:
        raw = json.loads(text)
        if set(raw) != _KEYS:
            raise ValueError(f"keys {sorted(raw)}, expected {sorted(_KEYS)}")
        return Description(
            engine=str(raw["engine"]),
            version=Version(raw["version"]),
            flags={
                str(name): None if values is None else tuple(values)
                for name, values in raw["flags"].items()
            },
            environment=frozenset(raw["environment"]),
            registries={str(name): tuple(names) for name, names in raw["registries"].items()},
        )
    except (ValueError, TypeError, AttributeError, InvalidVersion) as fault:
        raise CatalogueError(
            "not an engine's description",
            where=where,
            found=str(fault).splitlines()[0][:80],
            remedy="Write it again with `lockstep engine describe`.",
        ) from fault


def _pairs(argv: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag of a command line, in the parser's spelling, with the words that follow it."""
    current: tuple[str, list[str]] | None = None
    for word in argv:
        if is_flag(word):
            if current:
                yield current
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
            current = (name, [value] if equals else [])
        elif current:
            current[1].append(word)
    if current:
        yield current


def _nearest(name: str, names: Mapping[str, object] | Sequence[str] | frozenset[str]) -> str:
    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.8)), "")
