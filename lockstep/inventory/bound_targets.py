"""Targets bound to recipes, checked against the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lockstep.core import product
from lockstep.core.errors import (
    InventoryError,
    LockstepError,
    Unread,
    gather_faults,
    joint_fault,
    raise_all,
)
from lockstep.inventory.cluster import Group
from lockstep.inventory.override_check import override_refusals
from lockstep.inventory.refusals import Refusals, refuse
from lockstep.inventory.settings import FALLBACK, Settings, TargetData
from lockstep.inventory.values import Image, is_loopback
from lockstep.models.licences import canonical
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import Refusal, spelling_hint
from lockstep.recipes import flags
from lockstep.recipes.command import serve_command
from lockstep.recipes.placeholders import engine_of, kind_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving

# From the port of a target's door to the port of its engine, where the inventory names none.
ENGINE_PORT_OFFSET = 1000
LOOPBACK = "127.0.0.1"
#: Of every Spark's own web page, at loopback (facts of the field, 2026-11).
DASHBOARD_PORT = 11000
_DASHBOARD = "the DGX Dashboard"
# As messages name it: the folder and the file.
_DEFAULTS = "/".join(product.DEFAULTS.parts[-2:])
#: Packages that the gateway imports, as `Settings.tools` names them.
GATEWAY_TOOLS = (
    *("httptools", "httpx2", "prometheus-client", "pydantic"),
    *("starlette", "uvicorn", "uvloop"),
)
#: The name by which clients ask for whatever is hot.
AUTO = "auto"


@dataclass(frozen=True)
class BoundTarget:
    """One target with its recipe.

    Attributes:
        name: What `switch.sh` accepts.
        data: What the inventory says about it.
        recipe: The recipe it starts.
        fallback: The recipe to try where that fails, or None.
        port: TCP port of the API.
        model_name: The model's name in that API.
        image: Image reference as asked for (tag or digest), or None: the venv engine.
        group: This host's part of the cluster that serves it, or None: this host alone.
    """

    name: str
    data: TargetData
    recipe: Recipe
    fallback: Recipe | None
    port: int
    model_name: str
    image: str | None
    group: Group | None = None

    @property
    def answers(self) -> bool:
        """Whether the API is at this host: of a cluster, at rank 0 only."""
        return self.group is None or self.group.rank == 0

    @property
    def unit(self) -> str:
        """The systemd unit's full name."""
        return f"{self.data.unit}.service"

    @property
    def open(self) -> bool:
        """Whether other machines can reach the API here, so that it asks for a key."""
        return self.answers and not is_loopback(self.data.bind)

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipe and, where there is one, its fallback."""
        return (self.recipe,) if self.fallback is None else (self.recipe, self.fallback)

    @property
    def forms(self) -> tuple[tuple[str, str, Recipe], ...]:
        """Name for `switch.sh`, unit without ".service", and recipe: the target's, the fallback's.

        A fallback has a unit, so that systemd's `Conflicts=` and the memory gate hold for it as for
        any other model, and an operator can choose it by name.
        """
        return tuple(
            (self.name + suffix, self.data.unit + suffix, recipe)
            for suffix, recipe in zip(("", FALLBACK), self.recipes, strict=False)
        )

    def image_of(self, recipe: Recipe) -> str | None:
        """Image that one of `recipes` runs from, as asked for; None: the venv engine.

        The image that the inventory names holds the engine of the target's own recipe.
        """
        if not recipe.in_container:
            return None
        named = self.data.image if recipe.engine == self.recipe.engine else None
        return named or recipe.container

    @property
    def door(self) -> bool:
        """Whether the gateway has the port of the API: it joins roles, or asks for the key."""
        return self.answers and (self.open or any(each.refuses_roles for each in self.recipes))

    @property
    def engine_port(self) -> int | None:
        """Loopback port of the engine behind a door; None where the engine has the API's port."""
        if not self.door:
            return None
        return self.data.engine_port or self.port + ENGINE_PORT_OFFSET

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that this target listens at, that of the API first."""
        if not self.answers:
            return ()
        return (self.port, *([self.engine_port] if self.engine_port is not None else []))

    def overrides_key(self, recipe: Recipe) -> str:
        """Where the inventory sets the keys of one of its recipes."""
        return _overrides_key(self.data, self.recipe, recipe)

    def overrides(self, recipe: Recipe) -> dict[str, object]:
        """Recipe keys that the inventory sets for this target, for one of its recipes."""
        behind = self.engine_port
        host, port = (self.data.bind, self.port) if behind is None else (LOOPBACK, behind)
        # Some engines open a port for their health on every rank.
        host = host if self.answers else LOOPBACK
        given = getattr(self.data, self.overrides_key(recipe)) or {}
        asked = {**given, "host": host, "port": port}
        if self.group is None or recipe.engine is None:
            return asked
        copies = serving(recipe, asked).data_parallel
        return {**asked, **self.group.arguments(recipe.engine, data_parallel=copies)}


def check_tools(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse tools without a package that the gateway imports; ``where``: key → file."""
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
    named = {block.licence for block in blocks if block.licence}
    named |= {block.draft.licence for block in blocks if block.draft and block.draft.licence}
    faults: list[LockstepError] = []
    for index, licence in enumerate(settings.accept_licences):
        official = canonical(licence)
        # SPDX takes any text that begins so: who wrote it for weights is a recipe.
        known = official == licence and not licence.startswith("LicenseRef-")
        if licence in named or known:
            continue
        spelled = official if official != licence else None
        hint = f"Did you mean {spelled!r}?" if spelled else spelling_hint(licence, named)
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
) -> tuple[BoundTarget, ...]:
    """Every target of one host with its recipe, in the inventory's order.

    Args:
        settings: The host's data.
        catalogue: Recipes by name.
        where: Top-level key → file that gave its value, for errors.

    Raises:
        InventoryError: an unknown recipe, a port or a model's name used twice, an image without a
            usable digest.
        RecipeError: a recipe whose command line cannot be built.
    """
    file = where.get("targets", settings.name)
    bound: list[BoundTarget] = []
    faults: list[LockstepError] = []
    for name, data in settings.targets.items():
        with gather_faults(faults):
            bound.append(_bind(name, data, catalogue, file))
    with gather_faults(faults):
        _check_ports(settings, bound, where)
    with gather_faults(faults):
        refuse(_names(bound), file)
    with gather_faults(faults):
        refuse(_boot(settings, bound), where.get("boot", settings.name))
    raise_all(faults)
    return tuple(bound)


def _names(bound: Sequence[BoundTarget]) -> Refusals:
    """Refuse an alias by which a client could mean two things."""
    # A target's own served name is the same target.
    served = {target.model_name: f"the served name of {target.name}" for target in bound}
    taken = {AUTO: "whatever is hot"}
    for target in bound:
        for name, _, _ in target.forms:
            if name == AUTO:
                yield Refusal(
                    f"targets.{name} has a name that means whatever is hot",
                    remedy="Give the target another name.",
                )
            taken[name] = f"targets.{target.name}"
    for target in bound:
        for index, alias in enumerate(target.data.aliases):
            other = taken.get(alias)
            if other is None and alias != target.model_name:
                other = served.get(alias)
            if other is not None:
                yield Refusal(
                    f"targets.{target.name}.aliases[{index}] is the name of something else",
                    found=f"{alias!r}: {other}",
                    remedy="Give it another name.",
                )
            taken[alias] = f"targets.{target.name}.aliases[{index}]"


def _boot(settings: Settings, bound: Sequence[BoundTarget]) -> Refusals:
    """Refuse a target after a boot that does not exist, or whose recipes forbid it."""
    boot = settings.boot
    if boot in ("none", "last"):
        return
    names = {name: target for target in bound for name, _, _ in target.forms}
    if boot not in names:
        if boot.removesuffix(FALLBACK) in {*settings.targets} - {each.name for each in bound}:
            # More is said of that one.
            return
        yield Refusal(
            "boot names no target",
            found=repr(boot),
            allowed=", ".join(dict.fromkeys(("none", "last", *names, *settings.targets))),
            remedy=spelling_hint(boot, names),
        )
        return
    # A start that fails leads to the fallback.
    for recipe in names[boot].recipes:
        if recipe.lockstep.not_at_boot:
            yield Refusal(
                f"boot names target {boot}, whose recipe {recipe.name} must not come by itself "
                "after a boot",
                found=f"lockstep.not_at_boot: {recipe.lockstep.not_at_boot}",
                remedy='Set boot to another target, or to "none" and use switch.sh after a boot.',
            )


_Ports = Iterator[tuple[str, int]]


def _ports_of_clusters(settings: Settings, _: Sequence[BoundTarget]) -> _Ports:
    # Two clusters of one host may be up at the same time.
    for name, cluster in settings.clusters.items():
        if settings.name in cluster.hosts:
            yield f"clusters.{name}.port", cluster.port
            yield f"clusters.{name}.master_port", cluster.master_port


def _ports_of_webui(settings: Settings, _: Sequence[BoundTarget]) -> _Ports:
    if settings.webui.enabled:
        yield "webui.port", settings.webui.port


def _ports_of_targets(_: Settings, bound: Sequence[BoundTarget]) -> _Ports:
    for target in bound:
        for index, port in enumerate(target.ports):
            yield f"targets.{target.name}.{'engine_port' if index else 'port'}", port


def _ports_of_gateway(settings: Settings, _: Sequence[BoundTarget]) -> _Ports:
    yield "gateway.port", settings.gateway.port
    if settings.gateway.tls is not None:
        yield "gateway.tls_port", settings.gateway.tls_port


def _ports_of_monitoring(settings: Settings, _: Sequence[BoundTarget]) -> _Ports:
    for key, port in settings.monitoring.ports.items():
        yield f"monitoring.{key}", port


def _ports_of_backup(settings: Settings, _: Sequence[BoundTarget]) -> _Ports:
    if settings.backup.has_twin:
        yield "backup.port", settings.backup.port


# The gateway's after those of targets: it is newer, and what an earlier inventory names keeps its
# port.
_PORTS = (
    *(_ports_of_clusters, _ports_of_webui, _ports_of_targets),
    *(_ports_of_gateway, _ports_of_monitoring, _ports_of_backup),
)


def _check_ports(
    settings: Settings, bound: Sequence[BoundTarget], where: Mapping[str, str]
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
    asked: list[tuple[str, int]] = []
    for ports in _PORTS:
        with suppress(Unread):
            asked += ports(settings, bound)
    faults: list[LockstepError] = []
    for key, port in asked:
        what = found = ""
        if port > 65535:
            what = f"{key} is not a port"
            found = f"{port}, which is {port - ENGINE_PORT_OFFSET} + {ENGINE_PORT_OFFSET}"
        elif port in users:
            other = users[port]
            # Who has changed one of two defaults is not told to change the other.
            if is_default(key) and other != _DASHBOARD and not is_default(other):
                key, other = other, key
            what, found = f"{key}: port {port} is used twice", f"also by {other}"
        if what:
            file = where.get(key.partition(".")[0], settings.name)
            remedy = f"Set {key} to a free port."
            faults.append(InventoryError(what, where=file, found=found, remedy=remedy))
        users.setdefault(port, key)
    raise_all(faults)


def _overrides_key(data: TargetData, own: Recipe, recipe: Recipe) -> str:
    same = data.fallback_overrides is None and recipe.engine == own.engine
    return "overrides" if recipe == own or same else "fallback_overrides"


def _bind(name: str, data: TargetData, catalogue: Mapping[str, Recipe], file: str) -> BoundTarget:
    key = f"targets.{name}"
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
    for each in (recipe, fallback):
        if each is not None:
            which = _overrides_key(data, recipe, each)
            with gather_faults(faults):
                refuse(override_refusals(key, data, each, catalogue.values(), which), file)
    image = data.image or recipe.container or None
    if image is not None:
        with gather_faults(faults):
            schema.convert(Image, image, where=file, key=f"{key}: the image", error=InventoryError)
    # Its command line is made of all these.
    raise_all(faults)
    overrides = {**data.overrides, "host": data.bind}
    if data.port is not None:
        overrides["port"] = data.port
    argv = serve_command(recipe, overrides=overrides)
    found = flags.value_of(argv, engine_of(recipe).spellings("port"))
    if not found or not found.isdecimal():
        raise InventoryError(
            f"{key} has no port: neither the inventory nor the recipe gives one",
            where=file,
            remedy=f"Set {key}.port.",
        )
    kind, floor = kind_of(recipe, argv), data.floor
    if kind != "chat" and floor and (floor.decode_tok_s, floor.not_below) != (None, None):
        raise InventoryError(
            f"{key}.floor is a speed in tok/s, and its recipe gives no tokens",
            where=file,
            found=f"{recipe.name}, of kind {kind}",
            remedy=f"Remove decode_tok_s and not_below from {key}.floor.",
        )
    return BoundTarget(name, data, recipe, fallback, int(found), served_name(recipe, argv), image)


def served_name(recipe: Recipe, argv: Sequence[str]) -> str:
    """The model's name in the API of an engine with that command line."""
    names = flags.value_of(argv, engine_of(recipe).spellings("served_model_name"))
    return (names or recipe.model).split()[0]


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
