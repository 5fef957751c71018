"""Models bound to recipes, checked against the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from lockstep.checkpoints.licences import canonical
from lockstep.core import product
from lockstep.core.errors import (
    InventoryError,
    LockstepError,
    Unread,
    gather_faults,
    joint_fault,
    raise_all,
)
from lockstep.inventory.cluster import ClusterMembers
from lockstep.inventory.override_check import override_refusals
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import FALLBACK, ModelData, Settings
from lockstep.inventory.values import Image, is_loopback
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import SchemaFault, spelling_hint
from lockstep.recipes import flags
from lockstep.recipes.command import serve_command
from lockstep.recipes.placeholders import engine_of, kind_of, served_name
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, read_back, serving

# Distance from a listener's port to the port of its engine, where the inventory names no port.
ENGINE_PORT_OFFSET = 1000
LOOPBACK = "127.0.0.1"
#: Port of every Spark's own web page, at loopback (facts of the field, 2026-11).
DASHBOARD_PORT = 11000
_DASHBOARD = "the DGX Dashboard"
# The name in messages: the folder and the file.
_DEFAULTS = "/".join(product.DEFAULTS.parts[-2:])
#: Packages that the gateway imports, as `Settings.tools` names them.
GATEWAY_TOOLS = (
    *("httptools", "httpx2", "prometheus-client", "pydantic"),
    *("starlette", "uvicorn", "uvloop"),
)
#: The name by which clients ask for the hot model.
AUTO = "auto"


@dataclass(frozen=True)
class BoundModel:
    """A model with its recipe.

    Attributes:
        name: The word that `switch.sh` accepts.
        data: Its data in the inventory.
        recipe: The recipe it starts.
        fallback: The recipe to try where that fails, or None.
        port: TCP port of the API.
        served_name: The model's name in that API.
        image: Image reference as asked for (tag or digest), or None: the venv engine.
        group: This host's part of the cluster that serves it, or None: this host alone.
    """

    name: str
    data: ModelData
    recipe: Recipe
    fallback: Recipe | None
    port: int
    served_name: str
    image: str | None
    group: ClusterMembers | None = None

    @property
    def answers(self) -> bool:
        """True if the API is at this host: of a cluster, at rank 0 only."""
        return self.group is None or self.group.rank == 0

    @property
    def unit(self) -> str:
        """The systemd unit's full name."""
        return f"{self.data.unit}.service"

    @property
    def open(self) -> bool:
        """True if other machines can reach the API here, so that it asks for a key."""
        return self.answers and not is_loopback(self.data.bind)

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipe and, where there is one, its fallback."""
        return (self.recipe,) if self.fallback is None else (self.recipe, self.fallback)

    @property
    def forms(self) -> tuple[tuple[str, str, Recipe], ...]:
        """The names for `switch.sh`, units without ".service", and recipes of model and fallback.

        A fallback has a unit, so that systemd's `Conflicts=` and the memory gate hold for it as for
        any other model, and an operator can choose it by name.
        """
        return tuple(
            (self.name + suffix, self.data.unit + suffix, recipe)
            for suffix, recipe in zip(("", FALLBACK), self.recipes, strict=False)
        )

    def image_of(self, recipe: Recipe) -> str | None:
        """Return the image that one of `recipes` runs from, as asked for; None: the venv engine.

        An image that the inventory names holds the engine of the model's own recipe.
        """
        if not recipe.in_container:
            return None
        image_override = self.data.image if recipe.engine == self.recipe.engine else None
        return image_override or recipe.container

    @property
    def has_listener(self) -> bool:
        """True if the gateway has the port of the API: to join roles, or to ask for the key."""
        return self.answers and (self.open or any(recipe.refuses_roles for recipe in self.recipes))

    @property
    def engine_port(self) -> int | None:
        """The engine's loopback port behind a listener; None where the engine has the API's
        port."""
        if not self.has_listener:
            return None
        return self.data.engine_port or self.port + ENGINE_PORT_OFFSET

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that this model listens at, that of the API first."""
        if not self.answers:
            return ()
        return (self.port, *([self.engine_port] if self.engine_port is not None else []))

    def overrides_key(self, recipe: Recipe) -> str:
        """Return the key of the inventory that holds the overrides of one of its recipes."""
        return _overrides_key(self.data, self.recipe, recipe)

    def overrides(self, recipe: Recipe) -> dict[str, object]:
        """Return the recipe keys that the inventory sets for one of this model's recipes."""
        behind = self.engine_port
        host, port = (self.data.bind, self.port) if behind is None else (LOOPBACK, behind)
        # Some engines open a port for their health on every rank.
        host = host if self.answers else LOOPBACK
        own_overrides = getattr(self.data, self.overrides_key(recipe)) or {}
        all_overrides = {**own_overrides, "host": host, "port": port}
        if self.group is None or recipe.engine is None:
            return all_overrides
        copies = serving(recipe, all_overrides).data_parallel
        return {**all_overrides, **self.group.arguments(recipe.engine, data_parallel=copies)}

    def command(self, recipe: Recipe) -> tuple[str, ...]:
        """Return the engine's command line for one of `recipes`; weights by their names on the hub.

        Raises:
            RecipeError: it cannot be built.
        """
        if recipe.name not in self._commands:
            self._commands[recipe.name] = serve_command(recipe, overrides=self.overrides(recipe))
        return self._commands[recipe.name]

    def serving(self, recipe: Recipe) -> Serving:
        """Return the settings in that command line: nothing else reads them there.

        Raises:
            RecipeError: it cannot be built, or a value in it has no meaning.
        """
        if recipe.name not in self._servings:
            self._servings[recipe.name] = read_back(recipe, self.command(recipe))
        return self._servings[recipe.name]

    @cached_property
    def _commands(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def _servings(self) -> dict[str, Serving]:
        return {}


def check_tools(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse tools that lack a package of the gateway; ``where``: key → file."""
    missing = [name for name in GATEWAY_TOOLS if name not in settings.tools]
    if missing:
        raise InventoryError(
            "the gateway needs more tools",
            where=where.get("tools", settings.name),
            found=f"tools without {', '.join(missing)}",
            remedy="Keep the entries of tools in group_data/all.py.",
        )


def check_licences(
    settings: Settings, catalogue: Mapping[str, Recipe], where: Mapping[str, str]
) -> None:
    """Refuse accepted licences that neither SPDX nor a recipe has; ``where``: key → file."""
    blocks = [recipe.lockstep for recipe in catalogue.values()]
    licences = {block.licence for block in blocks if block.licence}
    licences |= {block.draft.licence for block in blocks if block.draft and block.draft.licence}
    faults: list[LockstepError] = []
    for index, licence in enumerate(settings.accept_licences):
        official = canonical(licence)
        # SPDX takes any text that begins so; only a recipe shows that it is a licence of weights.
        is_known = official == licence and not licence.startswith("LicenseRef-")
        if licence in licences or is_known:
            continue
        official_spelling = official if official != licence else None
        hint = (
            f"Did you mean {official_spelling!r}?"
            if official_spelling
            else spelling_hint(licence, licences)
        )
        faults.append(
            InventoryError(
                f"accept_licences[{index}] is no licence that SPDX or a recipe names",
                where=where.get("accept_licences", settings.name),
                found=repr(licence),
                allowed="what the finding `licence-refused` names",
                remedy=hint or "Remove it, or correct its name.",
            )
        )
    raise_all(faults)


def bind(
    settings: Settings, catalogue: Mapping[str, Recipe], where: Mapping[str, str]
) -> tuple[BoundModel, ...]:
    """Return every model of one host with its recipe, in the inventory's order.

    Args:
        settings: The host's data.
        catalogue: Recipes by name.
        where: Top-level key → file that gave its value, for errors.

    Raises:
        InventoryError: an unknown recipe, a port or a model's name used twice, an image without a
            usable digest.
        RecipeError: a recipe whose command line cannot be built.
    """
    file = where.get("models", settings.name)
    bound_models: list[BoundModel] = []
    faults: list[LockstepError] = []
    for name, data in settings.models.items():
        with gather_faults(faults):
            bound_models.append(_bind(name, data, catalogue, file))
    with gather_faults(faults):
        _check_ports(settings, bound_models, where)
    with gather_faults(faults):
        refuse(_names(bound_models), file)
    with gather_faults(faults):
        refuse(_boot(settings, bound_models), where.get("boot", settings.name))
    raise_all(faults)
    return tuple(bound_models)


def _names(bound_models: Sequence[BoundModel]) -> Refusals:
    """Refuse an alias by which a client could mean two things."""
    # A model's own served name means the same model.
    served_names = {model.served_name: f"the served name of {model.name}" for model in bound_models}
    taken_names = {AUTO: "whatever is hot"}
    for model in bound_models:
        for name, _, _ in model.forms:
            if name == AUTO:
                yield SchemaFault(
                    f"models.{name} has a name that means whatever is hot",
                    remedy="Give the model another name.",
                )
            taken_names[name] = f"models.{model.name}"
    for model in bound_models:
        for index, alias in enumerate(model.data.aliases):
            first_user = taken_names.get(alias)
            if first_user is None and alias != model.served_name:
                first_user = served_names.get(alias)
            if first_user is not None:
                yield SchemaFault(
                    f"models.{model.name}.aliases[{index}] is the name of something else",
                    found=f"{alias!r}: {first_user}",
                    remedy="Give it another name.",
                )
            taken_names[alias] = f"models.{model.name}.aliases[{index}]"


def _boot(settings: Settings, bound_models: Sequence[BoundModel]) -> Refusals:
    """Refuse a model after a boot that does not exist, or whose recipes forbid it."""
    boot = settings.boot
    if boot in ("none", "last"):
        return
    names = {name: model for model in bound_models for name, _, _ in model.forms}
    if boot not in names:
        if boot.removesuffix(FALLBACK) in {*settings.models} - {
            bound_model.name for bound_model in bound_models
        }:
            # A model with faults of its own has more precise messages.
            return
        yield SchemaFault(
            "boot names no model",
            found=repr(boot),
            allowed=", ".join(dict.fromkeys(("none", "last", *names, *settings.models))),
            remedy=spelling_hint(boot, names),
        )
        return
    # A start that fails leads to the fallback.
    for recipe in names[boot].recipes:
        if recipe.lockstep.not_at_boot:
            yield SchemaFault(
                f"boot names model {boot}, whose recipe {recipe.name} must not come by itself "
                "after a boot",
                found=f"lockstep.not_at_boot: {recipe.lockstep.not_at_boot}",
                remedy='Set boot to another model, or to "none" and use switch.sh after a boot.',
            )


_Ports = Iterator[tuple[str, int]]


def _ports_of_clusters(settings: Settings, _: Sequence[BoundModel]) -> _Ports:
    # Two clusters of one host may be up at the same time.
    for name, cluster in settings.clusters.items():
        if settings.name in cluster.hosts:
            yield f"clusters.{name}.port", cluster.port
            yield f"clusters.{name}.master_port", cluster.master_port


def _ports_of_webui(settings: Settings, _: Sequence[BoundModel]) -> _Ports:
    if settings.webui.enabled:
        yield "webui.port", settings.webui.port


def _ports_of_models(_: Settings, bound_models: Sequence[BoundModel]) -> _Ports:
    for model in bound_models:
        for index, port in enumerate(model.ports):
            yield f"models.{model.name}.{'engine_port' if index else 'port'}", port


def _ports_of_gateway(settings: Settings, _: Sequence[BoundModel]) -> _Ports:
    yield "gateway.port", settings.gateway.port
    if settings.gateway.tls is not None:
        yield "gateway.tls_port", settings.gateway.tls_port


def _ports_of_monitoring(settings: Settings, _: Sequence[BoundModel]) -> _Ports:
    for key, port in settings.monitoring.ports.items():
        yield f"monitoring.{key}", port


def _ports_of_backup(settings: Settings, _: Sequence[BoundModel]) -> _Ports:
    if settings.backup.has_peer:
        yield "backup.port", settings.backup.port


# The gateway's ports come after those of models: the gateway is newer, and a port that an earlier
# inventory names stays.
_PORTS = (
    *(_ports_of_clusters, _ports_of_webui, _ports_of_models),
    *(_ports_of_gateway, _ports_of_monitoring, _ports_of_backup),
)


def _check_ports(
    settings: Settings, bound_models: Sequence[BoundModel], where: Mapping[str, str]
) -> None:
    """Refuse a port that two things of this host would listen at."""

    def is_default(key: str) -> bool:
        place = where.get(key.partition(".")[0], "")
        return not place or place.startswith(_DEFAULTS)

    users = {DASHBOARD_PORT: _DASHBOARD}
    with suppress(Unread):
        users[settings.copy_port] = "copy_port"
    with suppress(Unread):
        users |= dict.fromkeys(settings.firewall.ssh_ports, "firewall.ssh_ports")
    port_users: list[tuple[str, int]] = []
    for ports in _PORTS:
        with suppress(Unread):
            port_users += ports(settings, bound_models)
    faults: list[LockstepError] = []
    for key, port in port_users:
        user = range_text = ""
        if port > 65535:
            user = f"{key} is not a port"
            range_text = f"{port}, which is {port - ENGINE_PORT_OFFSET} + {ENGINE_PORT_OFFSET}"
        elif port in users:
            first_user = users[port]
            # The message names the value that a person changed, not the default that it meets.
            if is_default(key) and first_user != _DASHBOARD and not is_default(first_user):
                key, first_user = first_user, key
            user, range_text = f"{key}: port {port} is used twice", f"also by {first_user}"
        if user:
            file = where.get(key.partition(".")[0], settings.name)
            remedy = f"Set {key} to a free port."
            faults.append(InventoryError(user, where=file, found=range_text, remedy=remedy))
        users.setdefault(port, key)
    raise_all(faults)


def _overrides_key(data: ModelData, own: Recipe, recipe: Recipe) -> str:
    is_same = data.fallback_overrides is None and recipe.engine == own.engine
    return "overrides" if recipe == own or is_same else "fallback_overrides"


def _bind(name: str, data: ModelData, catalogue: Mapping[str, Recipe], file: str) -> BoundModel:
    key = f"models.{name}"
    faults: list[LockstepError] = []
    recipe = fallback = None
    with gather_faults(faults):
        recipe = _recipe(f"{key}.recipe", data.recipe, catalogue, file)
    if data.fallback is not None:
        with gather_faults(faults):
            fallback = _recipe(f"{key}.fallback", data.fallback, catalogue, file)
    if recipe is None:
        raise joint_fault(faults)
    if data.image is not None and not recipe.in_container:
        fault = InventoryError(
            f"{key}.image is given, but its recipe runs in the venv engine",
            where=file,
            found=repr(data.image)[:80],
            remedy="Remove it, or name a recipe with a container.",
        )
        faults.append(fault)
    for bound_recipe in (recipe, fallback):
        if bound_recipe is not None:
            key_of_overrides = _overrides_key(data, recipe, bound_recipe)
            with gather_faults(faults):
                refuse(
                    override_refusals(
                        key, data, bound_recipe, catalogue.values(), key_of_overrides
                    ),
                    file,
                )
    image = data.image or recipe.container or None
    if image is not None:
        with gather_faults(faults):
            schema.convert(Image, image, where=file, key=f"{key}: the image", error=InventoryError)
    # The command line below is built from all values checked so far.
    raise_all(faults)
    overrides = {**data.overrides, "host": data.bind}
    if data.port is not None:
        overrides["port"] = data.port
    argv = serve_command(recipe, overrides=overrides)
    port_text = flags.value_of(argv, engine_of(recipe).spellings("port"))
    if not port_text or not port_text.isdecimal():
        raise InventoryError(
            f"{key} has no port: neither the inventory nor the recipe gives one",
            where=file,
            remedy=f"Set {key}.port.",
        )
    kind = kind_of(recipe, argv)
    if kind != "chat" and data.minimum and data.minimum.has_speed:
        raise InventoryError(
            f"{key}.minimum is a speed in tok/s, and its recipe gives no tokens",
            where=file,
            found=f"{recipe.name}, of kind {kind}",
            remedy=f"Remove decode_tok_s and not_below from {key}.minimum.",
        )
    return BoundModel(
        name, data, recipe, fallback, int(port_text), served_name(recipe, argv), image
    )


def _recipe(key: str, name: str, catalogue: Mapping[str, Recipe], file: str) -> Recipe:
    if name not in catalogue:
        raise InventoryError(
            f"{key} names an unknown recipe",
            where=file,
            found=repr(name),
            allowed=", ".join(sorted(catalogue)),
            remedy=spelling_hint(name, catalogue, "`lockstep recipe list` shows what each one is."),
        )
    return catalogue[name]
