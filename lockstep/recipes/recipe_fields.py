"""The keys of a recipe that Lockstep reads, with the surprises of the format; see `recipes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from lockstep.core.errors import RecipeError
from lockstep.core.yamlfile import part, place
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import LINES, Refusal, Rule, between, like, one_of
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.block import LockstepBlock

# Nobody was seen to run more than eight Sparks together (2026-11); this only stops typing errors.
MOST_NODES = 64

_HINTS = (
    *(hint for engine in ENGINES.values() for hint in engine.hints),
    (re.compile(r"(?:trtllm-serve\b|mpirun\b.*trtllm)"), "trtllm"),
)
# The runtimes of sparkrun that drive an engine of ours.
ENGINE_OF_RUNTIME = {name: engine for engine in ENGINES.values() for name in engine.runtimes}
# What a recipe without a runtime stands for.
_USUAL = next(engine.runtimes[0] for engine in ENGINES.values() if engine.usual)
RUNTIMES = (*ENGINE_OF_RUNTIME, "trtllm", "atlas")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?", re.ASCII)


def _is_word(text: str) -> bool:
    return not text.startswith("-") and not any(character.isspace() for character in text)


def _is_model(text: str) -> bool:
    known = _HUB_ID.fullmatch(text) is not None or text.startswith("/")
    return known and ".." not in text.split("/") and _is_word(text)


def _of_a_variable(value: Any) -> Refusal | None:
    if isinstance(value, dict | list) or value is None or "\0" in str(value):
        return Refusal("must be one text or number", remedy="Quote the value.")
    return Refusal("spans lines") if "\n" in str(value) else None


_Nodes = Annotated[int, between(1, MOST_NODES, "must be a whole number of Sparks", " Sparks")]
_Name = Annotated[str, like(r"[A-Za-z_]\w*", "is not a variable name", "letters, digits and '_'")]


@dataclass(frozen=True)
class Fields:
    """What a recipe says under the format's own keys, each as `Recipe` has it."""

    # GGUF: with ":quant".
    model: Annotated[
        str,
        Rule("must be a Hugging Face id (ORGANISATION/NAME) or a full path", _is_model),
    ] = ""
    model_revision: (
        Annotated[str, like(r"[A-Za-z0-9][\w./-]*", "must be a branch, tag or commit", "")] | None
    ) = None
    runtime: Annotated[str, one_of(RUNTIMES)] | None = None
    container: Annotated[str, Rule("must be one word that does not start with '-'", _is_word)] = ""
    min_nodes: _Nodes = 1
    max_nodes: _Nodes | None = None
    mode: Literal["auto", "solo", "cluster"] = "auto"
    solo_only: Any = None
    cluster_only: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[_Name, Annotated[Any, _of_a_variable]] = field(default_factory=dict)
    command: Annotated[str, LINES] = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    lockstep: LockstepBlock = field(default_factory=LockstepBlock)


def read(data: dict[str, Any], where: str) -> Fields:
    """The keys that Lockstep reads, without those that have no value.

    Raises:
        RecipeError: another version of the format, or a wrong value, with its line.
    """
    _refuse_v1(data, where)
    said = part(data, schema.hints(Fields))
    for key, value in tuple(said.items()):
        if value == "":
            del said[key]
        elif key in ("min_nodes", "max_nodes") and isinstance(value, str):
            said[key] = int(value) if value.strip().isdecimal() and len(value) < 6 else value
    return schema.build(Fields, said, where=where, error=RecipeError)


def _refuse_v1(data: dict[str, Any], where: str) -> None:
    """Refuse every version but 2, and say what version 1 would need."""
    version = str(data.get("recipe_version", data.get("sparkrun_version", "2")))
    if version == "2":
        return
    key = "recipe_version" if "recipe_version" in data else "sparkrun_version"
    remedy = 'Set `recipe_version: "2"` once the recipe follows that format.'
    if version == "1":
        remedy = (
            "Version 1 builds an image (`build_args`) and patches it (`mods`). Name a ready image "
            'under `container`, remove both keys, and set `recipe_version: "2"`.'
        )
    raise RecipeError(
        "this version of the recipe format is not supported",
        where=place(where, data, key),
        found=f"{key} {version!r}",
        allowed='"2"',
        remedy=remedy,
    )


def nodes(said: Fields, where: str) -> tuple[int, int | None]:
    """min_nodes and max_nodes, after the deprecated spellings mode, solo_only, cluster_only."""
    least, most = said.min_nodes, said.max_nodes
    if said.mode == "solo" or said.solo_only:
        most = 1
        least = 1 if said.mode == "solo" else least
    if said.mode == "cluster" or said.cluster_only:
        least = max(least, 2)
    if most is not None and most < least:
        raise RecipeError(
            "min_nodes is larger than max_nodes", where=where, found=f"{least} and {most} Sparks"
        )
    return least, most


def runtime(said: Fields) -> str:
    """The runtime as sparkrun resolves it: named, guessed from the command, or the usual one."""
    named = said.runtime
    if named is None and said.command:
        named = next((name for hint, name in _HINTS if hint.match(said.command)), None)
    named = named or _USUAL
    engine = ENGINE_OF_RUNTIME.get(named)
    return engine.runtime(named, said.command, said.defaults) if engine else named
