"""Command line and environment of a recipe: pure functions of recipe and overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines.command_line_flags import is_flag
from lockstep.recipes import flags, freeze_guard
from lockstep.recipes.placeholders import (
    engine_of,
    interpolate,
    refuse_leftovers,
    split,
    substitute,
)
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.spelling import in_full_spelling


class AsWritten(dict[str, str]):
    """A mapping that shows ``$VAR`` as itself: a listing or a check needs no values."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return f"${key}"


def serve_command(
    recipe: Recipe, *, overrides: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Return the engine's whole argument list, its own name first.

    Args:
        recipe: The recipe to serve.
        overrides: Recipe key → value; wins over `defaults` and over flags written out in the
            command. Besides every key of the flag table: ``model`` (id or path of a local
            snapshot), ``revision``, ``draft_model``, ``draft_revision``. None removes a flag.

    Raises:
        RecipeError: an engine that Lockstep does not run, unbalanced quotes, shell constructs, a
            circle among placeholders, or a placeholder without a value.
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
    """Return the engine's environment, without variables that stand for a flag of the command.

    Args:
        control: Values for ``$VAR`` and ``${VAR}``.
        overrides: As for `serve_command`; they and `defaults` are the values for ``{config.KEY}``.
        launch: Values for ``{launch.KEY}``; None: nothing is known of the start, and they stay.

    Raises:
        RecipeError: a value refers to a name that these lack.
    """
    return {
        key: interpolate(
            recipe,
            f"env.{key}",
            _expand(recipe, key, value, {} if control is None else control),
            overrides or {},
            launch,
        )
        for key, value in freeze_guard.variables(recipe).items()
        if recipe.engine is None or key not in recipe.engine.variables.values()
    }


# Recipe keys whose flag has no value.
_SWITCHES = ("embeddings", "reranking", "mlock")


class _Line:
    """The command line of a recipe while it is built."""

    def __init__(self, recipe: Recipe, overrides: Mapping[str, object]) -> None:
        self.recipe = recipe
        self.overrides = overrides
        self.engine = engine_of(recipe)
        self.argv: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin with the words of the recipe's command, else of its `defaults`, in order."""
        recipe, engine = self.recipe, self.engine
        if recipe.command:
            command_words = split(recipe, substitute(recipe, recipe.command, self.overrides))
            self.argv = in_full_spelling(engine, command_words)
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
        """Replace variables that stand for flags by flags; a written flag wins.

        RecipeError where the flags are in a file: nothing here would see them.
        """
        if flags.flag_span(self.argv, ("--config",)):
            raise self.recipe.fault(
                "the command takes its flags from a file, which nothing here reads",
                found="--config",
                remedy="Write these flags into the command.",
            )
        for key, name in self.engine.variables.items():
            value, names = self.recipe.env.get(name), self.engine.spellings(key)
            if value is not None and not flags.flag_span(self.argv, names):
                value_text = interpolate(self.recipe, f"env.{name}", value, self.overrides, {})
                switch = {"1": True, "true": True, "on": True, "0": False, "false": False}
                flag_value = (
                    switch.get(value_text.lower(), False) if key in _SWITCHES else value_text
                )
                self._set(names, flag_value)

    def put_model_first(self) -> None:
        """Put a positional model right after `serve`, where no flag can swallow it."""
        argv, model = self.argv, self.recipe.model
        if self.engine.positional_model and model in argv[3:] and is_flag(argv[2]):
            index = argv.index(model, 3)
            if argv[index - 1] != "--model":
                self.argv = (*argv[:2], model, *argv[2:index], *argv[index + 1 :])

    def override(self) -> None:
        """Replace settings of the recipe by those of the inventory."""
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
        """Name the commit for model and draft, so that the engine opens the fetched files."""
        own = None if "model" in self.overrides else self.recipe.model_revision
        revision, names = self.overrides.get("revision", own), self.engine.spellings("revision")
        if revision and names:
            self._set(names, revision)
        draft = self.recipe.lockstep.draft
        if draft and draft.revision and not {"draft_model", "draft_revision"} & set(self.overrides):
            self._draft("draft_revision", draft.revision)

    def always(self) -> Iterator[str]:
        """Yield the flags that the engine always gets, and the freeze guard's.

        A flag is left out where it is there already, or is refused by its key.
        """
        values = {**self.recipe.defaults, **self.overrides}
        refused_flags = {
            "--" + key.replace("_", "-") for key in values if values[key] in (None, False)
        }
        wanted_flags: list[tuple[str, ...]] = [(flag,) for flag in self.engine.always]
        wanted_flags += [freeze_guard.arguments(self.recipe, self.argv)]
        for words in wanted_flags:
            if not refused_flags.intersection(words[:1]) and not flags.flag_span(
                self.argv, words[:1]
            ):
                yield from words

    def _set(self, names: tuple[str, ...], value: Any) -> None:
        self.argv = flags.replace(self.argv, names, value)

    def _names(self, key: str) -> tuple[str, ...]:
        names = self.engine.spellings(key)
        if not names:
            raise self.recipe.fault(
                f"{self.engine.title} has no flag for {key}",
                remedy="Remove it from `defaults`, and from `overrides` of the model.",
            )
        return names

    def _keep_name(self, name: Any) -> None:
        """Give the model this name in the API, unless it has one."""
        names = self.engine.spellings("served_model_name")
        served_name = self.overrides.get("served_model_name") or flags.flag_span(self.argv, names)
        if name is not None and not served_name:
            self._set(names, name)

    def _serve(self, model: str) -> None:
        names = self.engine.spellings("model")
        for name in self.engine.hub_model:
            self._set((name,), None)
        if flags.flag_span(self.argv, names) or not self.engine.positional_model:
            self._set(names, model)
        else:
            has_model = len(self.argv) > 2 and not is_flag(self.argv[2])
            self.argv = (*self.argv[:2], model, *self.argv[3 if has_model else 2 :])

    def _draft(self, key: str, value: Any) -> None:
        if self.engine.draft_config:
            field = "model" if key == "draft_model" else "revision"
            changes = {field: str(value)}
            try:
                self.argv = flags.set_json(self.argv, self.engine.draft_config, **changes)
            except RecipeError as fault:
                parts = {"found": fault.found, "remedy": fault.remedy}
                raise self.recipe.fault(fault.summary, **parts) from fault
        elif flags.flag_span(self.argv, self.engine.spellings("draft_model")):
            self._set(self.engine.spellings(key), value)


def _expand(recipe: Recipe, key: str, value: str, control: Mapping[str, str]) -> str:
    def value_of_key(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in control:
            raise recipe.fault(
                f"env.{key} refers to ${name}, which is not set",
                remedy="Give the value itself, or set the variable in the inventory.",
            )
        return control[name]

    return re.sub(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", value_of_key, value)
