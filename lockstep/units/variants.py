"""The possible hot models of one host: every target, and its fallback as a separate target.

A fallback (`mistral-fallback`) has its own unit, so that systemd's `Conflicts=` and the memory gate
hold for it as for any other model, and an operator can choose it by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.core.digest import digest
from lockstep.core.errors import InventoryError, RecipeError
from lockstep.files.managed_file import HOME
from lockstep.fit import catalogue
from lockstep.fit.fit import fit
from lockstep.inventory.bound_targets import LOOPBACK, BoundTarget, served_name
from lockstep.inventory.settings import FALLBACK, Floor, Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.image_reference import pinned_reference
from lockstep.lock.pins import Pins, held
from lockstep.onhost.core.kind import Kind, Shape
from lockstep.onhost.core.need import Need
from lockstep.recipes import flags
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.placeholders import engine_of, kind_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import read_back
from lockstep.units import compile_caches
from lockstep.units.docker_run import docker_run
from lockstep.units.served_weights import weight_overrides

_SECRET = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|AUTH)_?KEY)$")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Variant:
    """One name that `switch.sh` accepts, ready to be written as a unit.

    Attributes:
        target: The target that it is of, with what the inventory says about it.
        name: What `switch.sh` accepts.
        unit: Name of the systemd unit, without ".service"; also of the container.
        recipe: What it serves.
        image: Image as Docker has it (REPOSITORY@sha256:…), or None: the venv engine.
        launcher: Path of the script that the unit runs, or None: the engine itself.
        argv: What runs in the unit's foreground, with every flag.
        environment: Variables of the engine.
        need: What the start gate asks for.
        floors: MemAvailable below which the engine is ended, GiB: while it loads, while it is hot.
        context: Tokens of one request with its answer, None where nothing says.
        evens: Shapes of conversations that the gateway evens out for it: what its recipe says that
            template and engine refuse, or else what the lock found of the template.
        fallback: Name of the variant to try where this one fails, or None.
        identity: Hash of what it runs: command line, variables, engine, borrowed weights.
        alike: Of a cluster's, the hash of what it runs on every member but for the rank's own
            words: equal where all members were deployed alike; "" for one of this host alone.
    """

    target: BoundTarget
    name: str
    unit: str
    recipe: Recipe
    image: str | None
    launcher: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    need: Need
    floors: tuple[float, float]
    context: int | None = None
    evens: tuple[Shape, ...] = ()
    fallback: str | None = None
    identity: str = ""
    alike: str = ""

    @property
    def model_name(self) -> str:
        """The model's name in the API."""
        return served_name(self.recipe, self.engine_argv)

    @property
    def kind(self) -> Kind:
        """What the model is asked for."""
        return kind_of(self.recipe, self.engine_argv)

    @property
    def tools(self) -> bool:
        """Whether it has a parser of tool calls: vLLM's and SGLang's flag; llama.cpp has none."""
        return flags.find(self.engine_argv, ("--tool-call-parser",)) is not None

    @property
    def floor(self) -> Floor | None:
        """How fast it must stay, or None: no fallback has to."""
        return self.target.data.floor if self.name == self.target.name else None

    @property
    def engine_argv(self) -> tuple[str, ...]:
        """The engine's own command line, without the container around it."""
        return self.argv[self.argv.index(self.image) + 1 :] if self.image else self.argv

    @property
    def url(self) -> str:
        """Where this host itself reaches the API, without a path; see `reachable`."""
        every = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}
        group, bind = self.target.group, self.target.data.bind
        if group is not None and not self.target.answers:
            every = dict.fromkeys(every, group.master)
        host = every.get(bind, bind)
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return f"http://{host}:{self.target.port}"

    @property
    def reachable(self) -> bool:
        """Whether this host reaches the API at all: rank 0 may have it at loopback only."""
        return self.target.answers or not is_loopback(self.target.data.bind)

    @property
    def engine_url(self) -> str:
        """Where the engine itself answers, without a path."""
        behind = self.target.engine_port
        return self.url if behind is None else f"http://{LOOPBACK}:{behind}"


def variants(
    settings: Settings, targets: tuple[BoundTarget, ...], pins: Pins, *, engine_id: str
) -> tuple[Variant, ...]:
    """Every variant of one host, in the inventory's order, a fallback right after its target.

    `engine_id` names the venv engine's generation, "" where no target needs one.

    Raises:
        ResolveError: a model or image that ``pins`` does not hold.
        RecipeError: a recipe that cannot be served, or that carries a secret.
        InventoryError: a name or unit that a fallback needs is taken.
    """

    def made(target: BoundTarget, recipe: Recipe, suffix: str = "") -> Variant:
        def of(each: BoundTarget) -> Variant:
            return _variant(settings, each, recipe, pins, engine_id, suffix)

        found = of(target)
        found = replace(found, identity=_identity(found, pins, engine_id))
        if target.group is None:
            return found
        common = of(replace(target, group=target.group.nameless))
        return replace(found, alike=_identity(common, pins, engine_id))

    found: list[Variant] = []
    for target in targets:
        main = made(target, target.recipe)
        if target.fallback is not None:
            spare = made(target, target.fallback, FALLBACK)
            found += [replace(main, fallback=spare.name), spare]
        else:
            found.append(main)
    _refuse_doubles(settings, found)
    return tuple(found)


def unit_names(targets: Iterable[BoundTarget]) -> tuple[str, ...]:
    """Full names of all units of these targets, fallbacks included."""
    return tuple(f"{unit}.service" for target in targets for _, unit, _ in target.forms)


def _variant(
    settings: Settings,
    target: BoundTarget,
    recipe: Recipe,
    pins: Pins,
    engine_id: str,
    suffix: str = "",
) -> Variant:
    unit = target.data.unit + suffix
    reference = target.image_of(recipe)
    image = pinned_reference(reference, pins) if reference else None
    pin = pins.models.get(recipe.repository)
    overrides = {**target.overrides(recipe), **weight_overrides(settings, recipe, pins)}
    engine_argv = serve_command(recipe, overrides=overrides)
    ours = compile_caches.of_image(image) if image else _of_venv(settings, engine_id)
    variables = _environment(settings, recipe, ours)
    if target.group is not None and recipe.engine is not None:
        # A recipe cannot know a host's interfaces.
        variables |= target.group.environment(recipe.engine)
    _refuse_secrets(recipe, engine_argv, variables)
    if image is not None:
        argv = docker_run(settings, recipe, unit, image, engine_argv, variables, group=target.group)
    else:
        argv = (f"{venv(settings)}/bin/{engine_argv[0]}", *engine_argv[1:])
    case = fit(
        recipe,
        catalogue.knowledge(),
        machine=catalogue.machine_of(settings),
        asked=read_back(recipe, engine_argv),
        floors=target.data.memory_floor.ends,
    )
    return Variant(
        target=target,
        name=target.name + suffix,
        unit=unit,
        recipe=recipe,
        image=image,
        launcher=_launcher(settings, target, image, suffix),
        argv=argv,
        environment=variables,
        need=case.need,
        floors=case.floors,
        context=case.context,
        evens=recipe.evens(pin.refused_shapes if pin else None),
    )


def venv(settings: Settings) -> str:
    """The venv of the generation that is in use on a host."""
    return f"{settings.paths.engines}/current/venv"


def _launcher(
    settings: Settings, target: BoundTarget, image: str | None, suffix: str
) -> str | None:
    given = target.data.launcher
    if given is None:
        if image is None:
            return None
        return f"{settings.paths.scripts}/llm/{target.data.unit}{suffix}-launch.sh"
    if not suffix:
        return given
    path = Path(given)
    return str(path.with_name(f"{path.stem}{suffix}{path.suffix}"))


def _of_venv(settings: Settings, engine_id: str) -> dict[str, str]:
    path = f"{venv(settings)}/bin:/usr/local/cuda/bin:{_SYSTEM_PATH}"
    return {"HOME": HOME, **compile_caches.of_venv(engine_id), "PATH": path}


def _environment(
    settings: Settings, recipe: Recipe, of_engine: Mapping[str, str]
) -> dict[str, str]:
    """The engine's variables: what every engine here gets, then the recipe's own, which win."""
    ours = {"HF_HOME": settings.paths.hub_cache, "HF_HUB_OFFLINE": "1"}
    ours |= {**engine_of(recipe).environment, **of_engine}
    return {**ours, **environment(recipe, control=ours)}


def _refuse_secrets(recipe: Recipe, argv: tuple[str, ...], variables: Mapping[str, str]) -> None:
    secret = next((name for name in variables if _SECRET.search(name.upper())), None)
    found = f"env.{secret}" if secret else "--api-key" if flags.find(argv, ("--api-key",)) else ""
    if found:
        raise RecipeError(
            "a recipe must not carry a secret: units and command lines are readable by everyone",
            where=str(recipe.path),
            found=found,
            remedy="Remove it; weights are fetched before, and the engine runs offline.",
        )


def _identity(variant: Variant, pins: Pins, engine_id: str) -> str:
    borrowed = [borrow.model for borrow in variant.recipe.lockstep.borrow]
    contents = {
        "argv": variant.argv,
        "environment": dict(variant.environment),
        "engine": None if variant.image else engine_id,
        "borrowed": {model: held(pins.models, model).commit for model in borrowed},
    }
    return digest(contents, 16)


def _refuse_doubles(settings: Settings, found: list[Variant]) -> None:
    taken: dict[str, str] = {}
    if settings.webui.enabled:
        taken[settings.webui.unit] = "webui"
    for variant in found:
        names = {"name": f"target {variant.name}", "unit": variant.unit}
        if variant.launcher:
            names["launcher"] = variant.launcher
        for what, name in names.items():
            if name in taken:
                raise InventoryError(
                    f"the {what} of target {variant.name} is taken",
                    where=settings.name,
                    found=f"{name!r}, also of {taken[name]}",
                    remedy=f"Names that end with {FALLBACK!r} belong to fallback recipes.",
                )
            taken[name] = variant.name
