"""The command line and environment that a recipe yields: pure functions of recipe and overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.onhost.engines.argv import is_flag
from lockstep.recipes import flags, freeze_guard
from lockstep.recipes.placeholders import (
    engine_of,
    interpolate,
    refuse_leftovers,
    split,
    substitute,
)
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import spelled


class AsWritten(dict[str, str]):
    """Shows ``$VAR`` as itself: a listing or a check needs no values from the inventory."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return f"${key}"


def serve_command(
    recipe: Recipe, *, overrides: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """The engine's whole argument list, its own name first.

    Args:
        recipe: What to serve.
        overrides: Recipe key → value; wins over `defaults` and over flags written out in the
            command. Besides every key of the flag table: ``model`` (id or path of a local
            snapshot), ``revision``, ``draft_model``, ``draft_revision``. None removes a flag.

    Raises:
        RecipeError: an engine that Lockstep does not run, unbalanced quotes, shell constructs, a
            circle among placeholders, or a placeholder left over.
    """
    line = _Line(recipe, overrides or {})
    line.start()
    line.read_variables()
    line.put_model_first()
    line.override()
    line.name_revisions()
    refuse_leftovers(recipe, line.argv)
    return (*line.argv, *line.always())


def environment(
    recipe: Recipe,
    *,
    control: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    launch: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """The engine's environment, without what stands for a flag: the command has that.

    Args:
        control: Values for ``$VAR`` and ``${VAR}``.
        overrides: As for `serve_command`; with `defaults` the values for ``{config.KEY}``.
        launch: Values for ``{launch.KEY}``; None: nothing is known of the start, and they stay.

    Raises:
        RecipeError: a value refers to something that these lack.
    """
    return {
        key: interpolate(
            recipe,
            f"env.{key}",
            _expanded(recipe, key, value, {} if control is None else control),
            overrides or {},
            launch,
        )
        for key, value in freeze_guard.variables(recipe).items()
        if recipe.engine is None or key not in recipe.engine.variables.values()
    }


# Recipe keys whose flag has no value.
_SWITCHES = ("embeddings", "reranking", "mlock")


class _Line:
    """The command line of a recipe while it is put together."""

    def __init__(self, recipe: Recipe, overrides: Mapping[str, object]) -> None:
        self.recipe = recipe
        self.overrides = overrides
        self.engine = engine_of(recipe)
        self.argv: tuple[str, ...] = ()

    def start(self) -> None:
        """The words of the recipe's command, else those of its `defaults`, in their order."""
        recipe, engine = self.recipe, self.engine
        if recipe.command:
            written = split(recipe, substitute(recipe, recipe.command, self.overrides))
            self.argv = spelled(engine, written)
            # sparkrun appends --served-model-name where the template omits it; so do we.
            self._keep_name(recipe.defaults.get("served_model_name"))
            return
        flag = () if engine.positional_model else engine.spellings("model")[:1]
        self.argv = (*engine.entries[0], *flag, recipe.model)
        for key, value in recipe.defaults.items():
            if key == "model" or key in self.overrides or key in flags.NOT_FLAGS:
                continue
            if isinstance(value, str):
                value = substitute(recipe, value, self.overrides)
            words = flags.words(value)
            if words is not None:
                self.argv = (*self.argv, self._names(key)[0], *words)

    def read_variables(self) -> None:
        """Variables that stand for flags, as flags; a flag that is written wins.

        RecipeError where the flags are in a file: nothing here would see them.
        """
        if flags.find(self.argv, ("--config",)):
            raise self.recipe.fault(
                "the command takes its flags from a file, which nothing here reads",
                found="--config",
                remedy="Write these flags into the command.",
            )
        for key, name in self.engine.variables.items():
            value, names = self.recipe.env.get(name), self.engine.spellings(key)
            if value is not None and not flags.find(self.argv, names):
                said = interpolate(self.recipe, f"env.{name}", value, self.overrides, {})
                switch = {"1": True, "true": True, "on": True, "0": False, "false": False}
                given = switch.get(said.lower(), False) if key in _SWITCHES else said
                self._set(names, given)

    def put_model_first(self) -> None:
        """A positional model stands right after `serve`, where no flag can swallow it."""
        argv, model = self.argv, self.recipe.model
        if self.engine.positional_model and model in argv[3:] and is_flag(argv[2]):
            index = argv.index(model, 3)
            if argv[index - 1] != "--model":
                self.argv = (*argv[:2], model, *argv[2:index], *argv[index + 1 :])

    def override(self) -> None:
        """What the inventory sets, in place of what the recipe says."""
        for key, value in self.overrides.items():
            if key in flags.NOT_FLAGS or key == "revision":
                continue
            if key == "model":
                self._serve(str(value))
                if value != self.recipe.model:
                    # A model served from a folder keeps its hub id as its name in the API.
                    self._keep_name(self.recipe.model)
            elif key in ("draft_model", "draft_revision"):
                self._draft(key, value)
            else:
                self._set(self._names(key), value)

    def name_revisions(self) -> None:
        """Name the commit for model and draft, so that the engine opens what was fetched."""
        own = None if "model" in self.overrides else self.recipe.model_revision
        revision, names = self.overrides.get("revision", own), self.engine.spellings("revision")
        if revision and names:
            self._set(names, revision)
        draft = self.recipe.lockstep.draft
        if draft and draft.revision and not {"draft_model", "draft_revision"} & set(self.overrides):
            self._draft("draft_revision", draft.revision)

    def always(self) -> Iterator[str]:
        """The engine's flags of every command line, and the freeze guard's, that are not there yet,
        nor refused by their key."""
        said = {**self.recipe.defaults, **self.overrides}
        refused = {"--" + key.replace("_", "-") for key in said if said[key] in (None, False)}
        wanted: list[tuple[str, ...]] = [(flag,) for flag in self.engine.always]
        wanted += [freeze_guard.arguments(self.recipe, self.argv)]
        for words in wanted:
            if not refused.intersection(words[:1]) and not flags.find(self.argv, words[:1]):
                yield from words

    def _set(self, names: tuple[str, ...], value: Any) -> None:
        self.argv = flags.replaced(self.argv, names, value)

    def _names(self, key: str) -> tuple[str, ...]:
        names = self.engine.spellings(key)
        if not names:
            raise self.recipe.fault(
                f"{self.engine.title} has no flag for {key}",
                remedy="Remove it from `defaults`, and from `overrides` of the target.",
            )
        return names

    def _keep_name(self, name: Any) -> None:
        """Give the model this name in the API, unless it has one."""
        names = self.engine.spellings("served_model_name")
        named = self.overrides.get("served_model_name") or flags.find(self.argv, names)
        if name is not None and not named:
            self._set(names, name)

    def _serve(self, model: str) -> None:
        names = self.engine.spellings("model")
        for name in self.engine.hub_model:
            self._set((name,), None)
        if flags.find(self.argv, names) or not self.engine.positional_model:
            self._set(names, model)
        else:
            given = len(self.argv) > 2 and not is_flag(self.argv[2])
            self.argv = (*self.argv[:2], model, *self.argv[3 if given else 2 :])

    def _draft(self, key: str, value: Any) -> None:
        if self.engine.draft_config:
            field = "model" if key == "draft_model" else "revision"
            changes = {field: str(value)}
            self.argv = flags.set_json(self.argv, self.engine.draft_config, **changes)
        elif flags.find(self.argv, self.engine.spellings("draft_model")):
            self._set(self.engine.spellings(key), value)


def _expanded(recipe: Recipe, key: str, value: str, control: Mapping[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in control:
            raise recipe.fault(
                f"env.{key} refers to ${name}, which is not set",
                remedy="Give the value itself, or set the variable in the inventory.",
            )
        return control[name]

    return re.sub(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", known, value)
