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
from lockstep.files.managed_file import HOME
from lockstep.fit import catalogue
from lockstep.fit.fit import fit
from lockstep.inventory.bound_models import LOOPBACK, BoundModel, served_name
from lockstep.inventory.settings import FALLBACK, Minimum, Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.image_reference import pinned_reference
from lockstep.lock.pins import Pins, entry_of
from lockstep.onhost.core import address
from lockstep.onhost.core.memory_requirement import Need
from lockstep.onhost.core.request_kind import Kind, Shape
from lockstep.recipes import flags, secret_values
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.placeholders import engine_of, kind_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import read_back
from lockstep.units import compile_caches
from lockstep.units.docker_run import docker_run
from lockstep.units.served_weights import model_path, weight_overrides

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Variant:
    """A name that `switch.sh` accepts, ready to be written as a unit.

    Attributes:
        model: Its model, with the inventory's data.
        name: The word that `switch.sh` accepts.
        unit: Name of the systemd unit, without ".service"; also of the container.
        recipe: The recipe that it serves.
        image: Image in Docker's form (REPOSITORY@sha256:…), or None: the venv engine.
        launcher: Path of the script that the unit runs, or None: the engine itself.
        argv: Command in the unit's foreground, with every flag.
        environment: Variables of the engine.
        need: Memory that the start gate asks for.
        minimums: MemAvailable below which the engine is ended, GiB: while it loads, while it is
            hot.
        context: Tokens of one request with its answer, None where not known.
        evens: Shapes of conversations that the gateway evens out for it: those that template and
            engine refuse by its recipe, or else by the lock's reading of the template.
        fallback: Name of the variant to try where this one fails, or None.
        identity: Hash of all that it runs: command line, variables, engine, borrowed weights.
        alike: The same hash for a cluster, without the rank's own words: equal where all members
            were deployed alike; "" for a variant of this host alone.
    """

    model: BoundModel
    name: str
    unit: str
    recipe: Recipe
    image: str | None
    launcher: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    need: Need
    minimums: tuple[float, float]
    context: int | None = None
    evens: tuple[Shape, ...] = ()
    fallback: str | None = None
    identity: str = ""
    alike: str = ""

    @property
    def served_name(self) -> str:
        """The name of the model in the API."""
        return served_name(self.recipe, self.engine_argv)

    @property
    def kind(self) -> Kind:
        """The kind of questions for the model."""
        return kind_of(self.recipe, self.engine_argv)

    @property
    def tools(self) -> bool:
        """True if it has a parser of tool calls: vLLM's and SGLang's flag; llama.cpp has none."""
        return flags.flag_span(self.engine_argv, ("--tool-call-parser",)) is not None

    @property
    def minimum(self) -> Minimum | None:
        """The minimum of its speed, or None: no fallback has one."""
        return self.model.data.minimum if self.name == self.model.name else None

    @property
    def engine_argv(self) -> tuple[str, ...]:
        """The engine's own command line, without the container around it."""
        return self.argv[self.argv.index(self.image) + 1 :] if self.image else self.argv

    @property
    def url(self) -> str:
        """The address of the API for this host itself, without a path; see `reachable`."""
        every = address.EVERYWHERE
        group, bind = self.model.group, self.model.data.bind
        if group is not None and not self.model.answers:
            every = dict.fromkeys(every, group.master)
        return address.url(every.get(bind, bind), self.model.port)

    @property
    def reachable(self) -> bool:
        """True if this host reaches the API at all: rank 0 may have it at loopback only."""
        return self.model.answers or not is_loopback(self.model.data.bind)

    @property
    def engine_url(self) -> str:
        """The address of the engine itself, without a path."""
        behind = self.model.engine_port
        return self.url if behind is None else address.url(LOOPBACK, behind)


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

    def make_variant(model: BoundModel, recipe: Recipe, suffix: str = "") -> Variant:
        def of(bound_model: BoundModel) -> Variant:
            return _variant(settings, bound_model, recipe, pins, engine_id, suffix)

        variant = of(model)
        variant = replace(variant, identity=_variant_identity(variant, pins, engine_id))
        if model.group is None:
            return variant
        common = of(replace(model, group=model.group.nameless))
        return replace(variant, alike=_variant_identity(common, pins, engine_id))

    variants_made: list[Variant] = []
    for model in models:
        main = make_variant(model, model.recipe)
        if model.fallback is not None:
            spare = make_variant(model, model.fallback, FALLBACK)
            variants_made += [replace(main, fallback=spare.name), spare]
        else:
            variants_made.append(main)
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
    suffix: str = "",
) -> Variant:
    unit = model.data.unit + suffix
    reference = model.image_of(recipe)
    image = pinned_reference(reference, pins) if reference else None
    pin = pins.checkpoints.get(recipe.repository)
    model_overrides = model.overrides(recipe)
    argv = serve_command(recipe, overrides=model_overrides)
    overrides = {**model_overrides, **weight_overrides(settings, recipe, pins, argv)}
    engine_argv = serve_command(recipe, overrides=overrides)
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
    case = fit(
        recipe,
        catalogue.knowledge(),
        machine=catalogue.machine_of(settings),
        asked=read_back(recipe, engine_argv),
        minimums=model.data.memory_minimum.ends,
    )
    return Variant(
        model=model,
        name=model.name + suffix,
        unit=unit,
        recipe=recipe,
        image=image,
        launcher=_launcher(settings, model, image, suffix),
        argv=argv,
        environment=variables,
        need=case.need,
        minimums=case.minimums,
        context=case.context,
        evens=recipe.evens(pin.refused_shapes if pin else None),
    )


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


def _variant_identity(variant: Variant, pins: Pins, engine_id: str) -> str:
    borrowed_models = [borrow.model for borrow in variant.recipe.lockstep.borrow]
    contents = {
        "argv": variant.argv,
        "environment": dict(variant.environment),
        "engine": None if variant.image else engine_id,
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
