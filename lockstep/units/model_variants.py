"""The variants of one host that may be hot: each model, and its fallback as one of its own.

A fallback (`mistral-fallback`) has its own unit, so that systemd's `Conflicts=` and the memory gate
hold for it as for any other model, and an operator can choose it by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.core.digest import digest
from lockstep.core.errors import InventoryError, RecipeError
from lockstep.files.managed_file import API_KEY, HOME
from lockstep.fit import catalogue
from lockstep.fit.fit import Fit, fit
from lockstep.inventory.bound_models import LOOPBACK, BoundModel
from lockstep.inventory.settings import FALLBACK, Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.image_reference import pinned_reference
from lockstep.lock.pins import Pins, entry_of
from lockstep.onhost.core import address_text
from lockstep.onhost.core.config import Model
from lockstep.recipes import secret_values
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.units import compile_caches
from lockstep.units.docker_run import docker_run
from lockstep.units.served_weights import model_path, weight_overrides

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Variant:
    """A name that `switch.sh` accepts, ready to be written as a unit.

    Attributes:
        served_model: What the programs of its host know of it.
        model: Its model, with the inventory's data.
        recipe: The recipe that it serves.
        unit: Name of the systemd unit, without ".service"; also of the container.
        launcher: Path of the script that the unit runs, or None: the engine itself.
        argv: Command in the unit's foreground, with every flag.
        engine_argv: The engine's own command line, without the container around it.
        environment: Variables of the engine.
        identity: Hash of all that it runs: command line, variables, engine, borrowed weights.
    """

    served_model: Model
    model: BoundModel
    recipe: Recipe
    unit: str
    launcher: str | None
    argv: tuple[str, ...]
    engine_argv: tuple[str, ...]
    environment: Mapping[str, str]
    identity: str

    @property
    def name(self) -> str:
        """The word that `switch.sh` accepts."""
        return self.served_model.name

    @property
    def image(self) -> str | None:
        """The image in Docker's form (REPOSITORY@sha256:…), or None: the venv engine."""
        return self.served_model.image


def variants(
    settings: Settings, models: tuple[BoundModel, ...], pins: Pins, *, engine_id: str
) -> tuple[Variant, ...]:
    """Return every variant of one host, in the inventory's order, a fallback after its model.

    `engine_id` names the venv engine, "" where no model needs one.

    Raises:
        ResolveError: a model or image that ``pins`` does not hold.
        RecipeError: a recipe that cannot be served, or that carries a secret.
        InventoryError: a name or unit that a fallback needs is taken.
    """

    def make_variant(model: BoundModel, recipe: Recipe, suffix: str) -> Variant:
        def of(bound_model: BoundModel) -> Variant:
            return _variant(settings, bound_model, recipe, pins, engine_id, suffix)

        variant = of(model)
        if model.group is None:
            return variant
        common = of(replace(model, group=model.group.nameless))
        return replace(variant, served_model=replace(variant.served_model, alike=common.identity))

    variants_made = [
        make_variant(model, recipe, suffix)
        for model in models
        for recipe, suffix in zip(model.recipes, ("", FALLBACK), strict=False)
    ]
    _refuse_equal_names(settings, variants_made)
    return tuple(variants_made)


def unit_names(models: Iterable[BoundModel]) -> tuple[str, ...]:
    """Return the full names of all units of these models, fallbacks included."""
    return tuple(f"{unit}.service" for model in models for _, unit, _ in model.forms)


def _variant(
    settings: Settings,
    model: BoundModel,
    recipe: Recipe,
    pins: Pins,
    engine_id: str,
    suffix: str,
) -> Variant:
    unit = model.data.unit + suffix
    reference = model.image_of(recipe)
    image = pinned_reference(reference, pins) if reference else None
    weights = weight_overrides(settings, recipe, pins, model.command(recipe))
    engine_argv = serve_command(recipe, overrides={**model.overrides(recipe), **weights})
    cache_variables = (
        compile_caches.container_cache_variables(image)
        if image
        else _venv_variables(settings, engine_id)
    )
    variables = _environment(settings, model, recipe, pins, cache_variables)
    if model.group is not None and recipe.engine is not None:
        # A recipe cannot know a host's interfaces.
        variables |= model.group.environment(recipe.engine)
    _refuse_secrets(recipe, engine_argv, variables)
    if image is not None:
        argv = docker_run(settings, recipe, unit, image, engine_argv, variables, group=model.group)
    else:
        argv = (f"{current_venv_path(settings)}/bin/{engine_argv[0]}", *engine_argv[1:])
    model_fit = fit(
        recipe,
        catalogue.knowledge(),
        machine=catalogue.machine_of(settings),
        asked=model.serving(recipe),
        minimums=model.data.memory_minimum.ends,
    )
    return Variant(
        served_model=_served_model(model, recipe, pins, image, model_fit, suffix),
        model=model,
        recipe=recipe,
        unit=unit,
        launcher=_launcher(settings, model, image, suffix),
        argv=argv,
        engine_argv=engine_argv,
        environment=variables,
        identity=_identity(recipe, argv, variables, pins, None if image else engine_id),
    )


def _served_model(
    model: BoundModel, recipe: Recipe, pins: Pins, image: str | None, model_fit: Fit, suffix: str
) -> Model:
    data, unit, need = model.data, model.data.unit + suffix, model_fit.need
    pin = pins.checkpoints.get(recipe.repository)
    serving, engine, draft = model.serving(recipe), engine_of(recipe), draft_of(recipe)
    loading_gib, serving_gib = model_fit.minimums
    return Model(
        **vars(
            replace(data.settings_alone, minimum=None, aliases=())
            if suffix
            else data.settings_alone
        ),
        name=model.name + suffix,
        unit=f"{unit}.service",
        url=_url(model),
        served_name=serving.served_name,
        memory_gib=need.gib,
        recipe=recipe.name,
        engine=engine.name,
        container=unit if image else None,
        image=image,
        fallback=model.name + FALLBACK if model.fallback and not suffix else None,
        api_key_file=API_KEY if model.open else None,
        engine_url=_engine_url(model) if model.answers else None,
        weights=(recipe.repository, *((draft.model,) if draft else ())),
        tools=serving.tools,
        logprobs=engine.logprobs_drafting or not serving.speculative,
        cluster=model.group.name if model.group else None,
        not_at_boot=recipe.lockstep.not_at_boot,
        memory_share=need.share,
        memory_of_total=need.of_total,
        memory_beside_gib=need.beside_gib,
        kind=serving.kind,
        load_free_gib=data.memory_minimum.free_gib,
        minimum_loading_gib=loading_gib,
        minimum_serving_gib=serving_gib,
        evens=recipe.evens(pin.refused_shapes if pin else None),
        context=model_fit.context,
    )


def _url(model: BoundModel) -> str:
    """Return the address of the API for this host; "" where rank 0 has it at loopback only."""
    bind = model.data.bind
    if not model.answers and is_loopback(bind):
        return ""
    everywhere = address_text.EVERYWHERE
    if model.group is not None and not model.answers:
        everywhere = dict.fromkeys(everywhere, model.group.master)
    return address_text.url(everywhere.get(bind, bind), model.port)


def _engine_url(model: BoundModel) -> str:
    """Return the address of the engine itself on this host."""
    behind = model.engine_port
    return _url(model) if behind is None else address_text.url(LOOPBACK, behind)


def current_venv_path(settings: Settings) -> str:
    """Return the venv that is in use on a host."""
    return f"{settings.paths.engines}/current/venv"


def _launcher(settings: Settings, model: BoundModel, image: str | None, suffix: str) -> str | None:
    launcher = model.data.launcher
    if launcher is None:
        if image is None:
            return None
        return f"{settings.paths.scripts}/llm/{model.data.unit}{suffix}-launch.sh"
    if not suffix:
        return launcher
    path = Path(launcher)
    return str(path.with_name(f"{path.stem}{suffix}{path.suffix}"))


def _venv_variables(settings: Settings, engine_id: str) -> dict[str, str]:
    path = f"{current_venv_path(settings)}/bin:/usr/local/cuda/bin:{_SYSTEM_PATH}"
    return {"HOME": HOME, **compile_caches.venv_cache_variables(engine_id), "PATH": path}


def _environment(
    settings: Settings,
    model: BoundModel,
    recipe: Recipe,
    pins: Pins,
    of_engine: Mapping[str, str],
) -> dict[str, str]:
    """Return the engine's variables: those of every engine here, then the recipe's, which win."""
    own_variables = {"HF_HOME": settings.paths.hub_cache, "HF_HUB_OFFLINE": "1"}
    own_variables |= {**engine_of(recipe).environment, **of_engine}
    commit = None
    if not recipe.model.startswith("/"):
        commit = entry_of(pins.checkpoints, recipe.repository).commit
    launch = {
        "model_path": model_path(settings, recipe, commit) if commit else recipe.model,
        "model_revision": commit,
        "num_nodes": len(model.group.members) if model.group else 1,
        "node_rank": model.group.rank if model.group else 0,
        "node_host": model.group.address if model.group else LOOPBACK,
        "runtime_cache_dir": of_engine["XDG_CACHE_HOME"],
    }
    recipe_variables = environment(
        recipe, control=own_variables, overrides=model.overrides(recipe), launch=launch
    )
    return {**own_variables, **recipe_variables}


def _refuse_secrets(recipe: Recipe, argv: tuple[str, ...], variables: Mapping[str, str]) -> None:
    secret_found = [f"env.{name}" for name, _ in secret_values.of_variables(variables)]
    secret_found += [name for name, _ in secret_values.of_command(argv)]
    if secret_found:
        raise RecipeError(
            "a recipe must not carry a secret: units and command lines are readable by everyone",
            where=str(recipe.path),
            found=", ".join(secret_found),
            remedy="Remove it; weights are fetched before, and the engine runs offline.",
        )


def _identity(
    recipe: Recipe,
    argv: tuple[str, ...],
    variables: Mapping[str, str],
    pins: Pins,
    engine_id: str | None,
) -> str:
    borrowed_models = [borrow.model for borrow in recipe.lockstep.borrow]
    contents = {
        "argv": argv,
        "environment": dict(variables),
        "engine": engine_id,
        "borrowed": {name: entry_of(pins.checkpoints, name).commit for name in borrowed_models},
    }
    return digest(contents, 16)


def _refuse_equal_names(settings: Settings, all_variants: list[Variant]) -> None:
    names_taken: dict[str, str] = {}
    if settings.webui.enabled:
        names_taken[settings.webui.unit] = "webui"
    for variant in all_variants:
        names = {"name": f"model {variant.name}", "unit": variant.unit}
        if variant.launcher:
            names["launcher"] = variant.launcher
        for description, name in names.items():
            if name in names_taken:
                raise InventoryError(
                    f"the {description} of model {variant.name} is taken",
                    where=settings.name,
                    found=f"{name!r}, also of {names_taken[name]}",
                    remedy=f"Names that end with {FALLBACK!r} belong to fallback recipes.",
                )
            names_taken[name] = variant.name
