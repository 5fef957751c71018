"""The wanted state of one host, derived from inventory data and pins, for deploy and diff."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from lockstep.core.digest import digest
from lockstep.core.version import version
from lockstep.files.managed_file import (
    AGENT_UNIT,
    CONFIGURATION,
    GATEWAY_UNIT,
    SERVED_WEIGHTS,
    ManagedFile,
    Stage,
)
from lockstep.files.programs import run_by
from lockstep.host.given_secrets import GivenSecret, given_secrets
from lockstep.host.shared_keys import SharedKey, shared_keys
from lockstep.host.specs import engine_spec, weights_spec
from lockstep.inventory.host import HostPlan, images_of
from lockstep.lock import pins
from lockstep.lock.engine_id import engine_id
from lockstep.lock.experts import informed
from lockstep.lock.image_reference import api_address, parse, pinned_reference
from lockstep.lock.wanted import needs_engine
from lockstep.monitoring import stack
from lockstep.onhost.core import taken
from lockstep.onhost.records import boots, restic
from lockstep.onhost.system.gpu import CAP_UNIT
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read
from lockstep.system.folders import model_units
from lockstep.system.tools import Environment, tool_environments
from lockstep.units import backup_twin, gateway_unit, tls_unit, watch_units
from lockstep.units.all_files import artefacts
from lockstep.units.variants import variants


def lock_hash(record: pins.Pins) -> str:
    """16 hexadecimal digits of everything resolved, whichever hosts need it."""
    return digest(asdict(record), 16)


@dataclass(frozen=True)
class Intended:
    """One host as it is to be: everything derived from its plan and the pins."""

    plan: HostPlan
    pins: pins.Pins

    def __post_init__(self) -> None:
        """What the lock knows of a checkpoint stands in every recipe from here on."""
        object.__setattr__(self, "plan", informed(self.plan, self.pins))

    @cached_property
    def engine_id(self) -> str:
        """Name of the engine environment: a hash of what it contains."""
        return engine_id(self.plan.settings, self.pins)

    @cached_property
    def engine_spec(self) -> dict[str, Any] | None:
        """What `engine_build` reads on the host; None where no target runs in a venv."""
        return engine_spec(self.plan, self.pins) if needs_engine(self.plan.targets) else None

    @property
    def _engine(self) -> str:
        """The same; "" where no target runs in a venv."""
        return self.engine_id if self.engine_spec else ""

    @cached_property
    def tools(self) -> dict[str, Environment]:
        """The environments of our own tools."""
        return tool_environments(self.plan.settings, self.pins)

    @cached_property
    def images(self) -> list[str]:
        """References by digest of all images of the host."""
        return [pinned_reference(name, self.pins) for name in images_of(self.plan)]

    @cached_property
    def image_origins(self) -> dict[str, str]:
        """Each of `images` → the address where its bytes are, mirrors heeded."""
        sources = self.plan.settings.sources
        names = images_of(self.plan)
        return {
            pinned_reference(name, self.pins): api_address(parse(name), sources) for name in names
        }

    @cached_property
    def engine_images(self) -> dict[str, tuple[str, str]]:
        """Digest → (reference, engine) of the images that hold an engine."""
        return {
            self.pins.images[image].digest: (
                pinned_reference(image, self.pins),
                engine_of(recipe).name,
            )
            for _, recipe, image in self._variants()
            if image
        }

    def _variants(self) -> Iterator[tuple[str, Recipe, str | None]]:
        """Name, recipe and image of every target and every fallback."""
        for target in self.plan.targets:
            for name, _, recipe in target.forms:
                yield name, recipe, target.image_of(recipe)

    @property
    def engine_question(self) -> dict[str, Any]:
        """What to ask the reader `environments`."""
        spec = self.engine_spec or {"home": "/nonexistent", "current": "/nonexistent"}
        images = {name: name for name in self.engine_images}
        return {"home": spec["home"], "current": spec["current"], "images": images}

    @property
    def webui_units(self) -> list[str]:
        """The unit of Open WebUI, where it is wanted."""
        webui = self.plan.settings.webui
        return [f"{webui.unit}.service"] if webui.enabled else []

    @property
    def boot_units(self) -> list[str]:
        """The unit that makes a model hot after a boot, where that is asked for."""
        return [] if self.plan.settings.boot == "none" else [boots.UNIT]

    @cached_property
    def key_users(self) -> list[str]:
        """Units that read the API key when they start; [] where no target is open to others."""
        return [GATEWAY_UNIT] if any(target.open for target in self.plan.targets) else []

    @property
    def gateway_units(self) -> list[str]:
        """What of the gateway starts at boot, in the order of the start."""
        tls = [tls_unit.UNIT] if self.plan.settings.gateway.tls else []
        return [*gateway_unit.UNITS, *tls]

    @property
    def packages(self) -> list[str]:
        """Debian packages that it is to have."""
        tls = [tls_unit.PACKAGE] if self.plan.settings.gateway.tls else []
        saved = [restic.PACKAGE] if self.plan.settings.backup.enabled else []
        return [*self.plan.settings.packages, *tls, *saved, *stack.packages(self.plan)]

    @cached_property
    def shared_keys(self) -> tuple[SharedKey, ...]:
        """The keys that it has in common with other hosts."""
        return tuple(shared_keys(self.plan))

    @cached_property
    def given_secrets(self) -> tuple[GivenSecret, ...]:
        """The secrets that a deploy brings to it."""
        return tuple(given_secrets(self.plan))

    @property
    def timers(self) -> list[str]:
        """Our timers, which start at boot; they start no model."""
        return [name for name in self.unit_files if name.endswith(".timer")]

    @cached_property
    def watching(self) -> list[str]:
        """What starts at boot beside a model and Open WebUI, and runs from the deploy on."""
        agent = [AGENT_UNIT] if self.plan.groups else []
        cap = [CAP_UNIT] if self.plan.settings.gpu.max_clock_mhz else []
        door = [backup_twin.UNIT] if self.plan.backups.of else []
        return [*self.timers, watch_units.MEMORY_UNIT, *agent, *cap, *door]

    @cached_property
    def model_units(self) -> list[str]:
        """Units of all targets and their fallbacks."""
        return model_units(self.files("services"))

    def unasked(self, engines: dict[str, Any]) -> dict[str, str]:
        """Target or fallback → why the engine in its image could not be asked about its recipe.

        `engines` is the answer of the reader `environments`.
        """
        found = {}
        for name, _, image in self._variants():
            record = image and engines["images"].get(self.pins.images[image].digest)
            if record and record["unanswered"]:
                found[name] = record["unanswered"]
        return found

    @cached_property
    def image_questions(self) -> dict[str, str]:
        """Digest of each image → what `image_answer` reads: command lines and variables as they
        will stand in the units, so that any change of them is a new question."""
        plan, asked = self.plan, dict[str, list[dict[str, Any]]]()
        for one in variants(plan.settings, plan.targets, self.pins, engine_id=self._engine):
            if one.image:
                recipe = {
                    "name": one.recipe.name,
                    "argv": list(one.engine_argv),
                    "environment": dict(one.environment),
                    "read": options_read(one.recipe, one.engine_argv),
                }
                asked.setdefault(one.image.partition("@")[2], []).append(recipe)
        return {name: json.dumps(recipes, indent=1) + "\n" for name, recipes in asked.items()}

    def to_ask(self, images: Mapping[str, Any]) -> list[str]:
        """Digests whose engine has not taken exactly these recipes yet.

        `images` is digest → what `image_check` keeps, None where it was never asked.
        """
        return [
            name
            for name, text in self.image_questions.items()
            if not taken.has(images.get(name), taken.digest(text))
        ]

    def files(self, stage: Stage) -> list[ManagedFile]:
        """The managed files of one stage of the deploy ("base", "services", "switch", "webui")."""
        return [file for file in self.all_files if file.stage == stage]

    @cached_property
    def generation(self) -> dict[str, Any]:
        """The record of this host once the deploy is done, but for its number and date.

        Rolling out, rolling back, `lockstep gc` and `lockstep diff` agree on "now" and "before"
        because all of them read these records; `generations` keeps them on the host.
        """
        weights = weights_spec(self.plan, self.pins)
        found = {
            "engine": {"folder": self.plan.settings.paths.engines, "id": self._engine or None},
            "images": sorted(self.images),
            "weights": {
                "cache_dir": weights["cache_dir"],
                # Of every repository that is served or borrowed from.
                "revisions": sorted(
                    {
                        f"{each['model']}@{each['revision']}"
                        for repository in weights["repositories"]
                        for each in (repository, *repository.get("borrow", ()))
                    }
                ),
            },
            # What model units are and read.
            "files": [
                {key: getattr(file, key) for key in ("path", "text", "mode", "owner", "group")}
                for file in self.files("services")
            ],
        }
        # Another Lockstep that writes the same is no other generation.
        made_by = {"lockstep": version(), "lock": lock_hash(self.pins)}
        return {**found, **made_by, "digest": digest(found, 16)}

    @cached_property
    def all_files(self) -> list[ManagedFile]:
        """The managed files of all stages."""
        made = artefacts(self.plan, self.pins, engine_id=self._engine)
        more = (*tls_unit.tls_files(self.plan), *stack.monitoring_files(self.plan))
        return [*made, *more, *self._specs(), self._served_weights()]

    @cached_property
    def paths(self) -> list[str]:
        """Where they are: every path that this deploy owns."""
        return [file.path for file in self.all_files]

    @cached_property
    def unit_files(self) -> list[str]:
        """Names of the units among them; systemd knows none of a template's own."""
        every = (PurePosixPath(file.path).name for file in self.all_files if file.check == "unit")
        return [name for name in every if "@." not in name]

    @cached_property
    def unit_programs(self) -> dict[str, list[str]]:
        """Unit → paths of our modules that its service runs."""
        files = {PurePosixPath(file.path).name: file.text for file in self.all_files}
        return {name: paths for name in self.unit_files if (paths := run_by(files[name]))}

    def _served_weights(self) -> ManagedFile:
        """Which weights the units read: written with them, while weights.json is what to fetch.

        A host that a rollout has not come to yet goes on, and may switch, with its own.
        """
        spec = {**weights_spec(self.plan, self.pins), "endpoint": None}
        text = json.dumps(spec, indent=1) + "\n"
        return ManagedFile(SERVED_WEIGHTS, text, check="json", stage="services")

    def _specs(self) -> list[ManagedFile]:
        specs = {"weights": weights_spec(self.plan, self.pins), "engine": self.engine_spec}
        user = self.plan.settings.service_user
        written = [
            # The URL of a proxy or an index may hold a password; the account that builds reads it.
            ManagedFile(
                f"{CONFIGURATION}/{name}.json",
                json.dumps(spec, indent=1) + "\n",
                mode="0640",
                group=user,
            )
            for name, spec in specs.items()
            if spec
        ]
        return written + [ManagedFile(each.requirements, each.text) for each in self.tools.values()]
