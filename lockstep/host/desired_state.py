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
from lockstep.files.programs import modules_run_by_unit
from lockstep.host.keys_shared_by_hosts import SharedKey, shared_keys
from lockstep.host.specs import engine_spec, weights_spec
from lockstep.host.uploaded_secrets import UploadedSecret, uploaded_secrets_of
from lockstep.inventory.host import HostPlan, images_of
from lockstep.lock import pins
from lockstep.lock.engine_id import engine_id
from lockstep.lock.experts import with_known_experts
from lockstep.lock.image_reference import api_address, parse, pinned_reference
from lockstep.lock.lock_items import needs_engine
from lockstep.monitoring import stack
from lockstep.onhost.core import passed_engine_checks
from lockstep.onhost.core.program_command_lines import PROGRAMS
from lockstep.onhost.records import models_by_boot, restic_client
from lockstep.onhost.system.gpu_sensors import CAP_UNIT
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read
from lockstep.system.folders import model_units
from lockstep.system.tools import Environment, tool_environments
from lockstep.units import backup_peer, gateway_unit, tls_unit, watch_units
from lockstep.units.all_files import deployed_files
from lockstep.units.model_variants import variants


def lock_hash(record: pins.Pins) -> str:
    """Return 16 hexadecimal digits of everything resolved, whichever hosts need it."""
    return digest(asdict(record), 16)


@dataclass(frozen=True)
class DesiredState:
    """The wanted state of one host: everything derived from its plan and the pins."""

    plan: HostPlan
    pins: pins.Pins

    def __post_init__(self) -> None:
        """Fill every recipe with the lock's facts about its checkpoint."""
        object.__setattr__(self, "plan", with_known_experts(self.plan, self.pins))

    @cached_property
    def engine_id(self) -> str:
        """The name of the engine environment: a hash of its content."""
        return engine_id(self.plan.settings, self.pins)

    @cached_property
    def engine_spec(self) -> dict[str, Any] | None:
        """The spec that `engine_build` reads on the host; None where no model runs in a venv."""
        return engine_spec(self.plan, self.pins) if needs_engine(self.plan.models) else None

    @property
    def _engine(self) -> str:
        """The `engine_id`; "" where no model runs in a venv."""
        return self.engine_id if self.engine_spec else ""

    @cached_property
    def tool_environments(self) -> dict[str, Environment]:
        """The environments of our own tools."""
        return tool_environments(self.plan.settings, self.pins)

    @cached_property
    def images(self) -> list[str]:
        """References by digest of all images of the host."""
        return [pinned_reference(name, self.pins) for name in images_of(self.plan)]

    @cached_property
    def image_origins(self) -> dict[str, str]:
        """Each of `images` → the address of its bytes, from a mirror where there is one."""
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
        """Yield name, recipe and image of every model and every fallback."""
        for model in self.plan.models:
            for name, _, recipe in model.forms:
                yield name, recipe, model.image_of(recipe)

    @property
    def engine_question(self) -> dict[str, Any]:
        """The question for the reader `environments`."""
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
        return [] if self.plan.settings.boot == "none" else [models_by_boot.UNIT]

    @cached_property
    def key_users(self) -> list[str]:
        """Units that read the API key when they start; [] where no model is open to others."""
        return [GATEWAY_UNIT] if any(model.open for model in self.plan.models) else []

    @property
    def gateway_units(self) -> list[str]:
        """The gateway's units that start at boot, in the order of the start."""
        tls = [tls_unit.UNIT] if self.plan.settings.gateway.tls else []
        return [*gateway_unit.UNITS, *tls]

    @property
    def packages(self) -> list[str]:
        """Debian packages that the host is to have."""
        tls = [tls_unit.PACKAGE] if self.plan.settings.gateway.tls else []
        backup_packages = [restic_client.PACKAGE] if self.plan.settings.backup.enabled else []
        return [*self.plan.settings.packages, *tls, *backup_packages, *stack.packages(self.plan)]

    @cached_property
    def shared_keys(self) -> tuple[SharedKey, ...]:
        """The keys that the host shares with other hosts."""
        return tuple(shared_keys(self.plan))

    @property
    def certificates(self) -> dict[str, tuple[str, str]]:
        """Path of each certificate for other Sparks → path of its authority, and its name."""
        return {
            path: (key.path, name)
            for key in self.shared_keys
            for path, name in key.certificates.items()
        }

    @cached_property
    def uploaded_secrets(self) -> tuple[UploadedSecret, ...]:
        """The secrets that a deploy brings to the host."""
        return tuple(uploaded_secrets_of(self.plan))

    @property
    def timers(self) -> list[str]:
        """Our timers, which start at boot; they start no model."""
        return [name for name in self.unit_files if name.endswith(".timer")]

    @cached_property
    def watch_units(self) -> list[str]:
        """Units that start at boot beside a model and Open WebUI, and run from the deploy on.

        Those of an owner's own that have an [Install] section are among them.
        """
        agent = [AGENT_UNIT] if self.plan.groups else []
        cap = [CAP_UNIT] if self.plan.settings.gpu.max_clock_mhz else []
        backup_listener = [backup_peer.UNIT] if self.plan.backups.of else []
        own = [
            name
            for file in self.plan.extra_files
            if (name := PurePosixPath(file.path).name) in self.unit_files
            and name not in self.timers
            and "\n[Install]\n" in file.text
        ]
        return [*self.timers, watch_units.MEMORY_UNIT, *agent, *cap, *backup_listener, *own]

    @cached_property
    def model_units(self) -> list[str]:
        """Units of all models and their fallbacks."""
        return model_units(self.files("services"))

    def unchecked_images(self, engines: dict[str, Any]) -> dict[str, str]:
        """Return model or fallback → why its image's engine could not be asked about its recipe.

        `engines` is the answer of the reader `environments`.
        """
        reasons = {}
        for name, _, image in self._variants():
            record = image and engines["images"].get(self.pins.images[image].digest)
            if record and record["unanswered"]:
                reasons[name] = record["unanswered"]
        return reasons

    @cached_property
    def image_questions(self) -> dict[str, str]:
        """Digest of each image → the question that `recipe_check_in_image` reads.

        Command lines and variables are as in the units, so any change of them is a new question.
        """
        plan, questions = self.plan, dict[str, list[dict[str, Any]]]()
        for variant in variants(plan.settings, plan.models, self.pins, engine_id=self._engine):
            if variant.image:
                recipe = {
                    "name": variant.recipe.name,
                    "argv": list(variant.engine_argv),
                    "environment": dict(variant.environment),
                    "read": options_read(variant.recipe, variant.engine_argv),
                }
                questions.setdefault(variant.image.partition("@")[2], []).append(recipe)
        return {name: json.dumps(recipes, indent=1) + "\n" for name, recipes in questions.items()}

    def unchecked_digests(self, images: Mapping[str, Any]) -> list[str]:
        """Return the digests whose engine has not accepted exactly these recipes yet.

        `images` is digest → the record of `model_recipe_check`, None where it was never asked.
        """
        return [
            name
            for name, text in self.image_questions.items()
            if not passed_engine_checks.has_passed(
                images.get(name), passed_engine_checks.question_hash(text)
            )
        ]

    def files(self, stage: Stage) -> list[ManagedFile]:
        """Return the managed files of one stage ("base", "services", "switch", "webui")."""
        return [file for file in self.all_files if file.stage == stage]

    @cached_property
    def generation_document(self) -> dict[str, Any]:
        """The host's generation once the deploy is done, without its number and date.

        Rolling out, rolling back, `lockstep gc` and `lockstep diff` agree on "now" and "before"
        because all of them read these records; `generations` keeps them on the host.
        """
        weights = weights_spec(self.plan, self.pins)
        contents = {
            "engine": {"folder": self.plan.settings.paths.engines, "id": self._engine or None},
            "images": sorted(self.images),
            "weights": {
                "cache_dir": weights["cache_dir"],
                # Every repository that a model is served from or borrows from counts.
                "revisions": sorted(
                    {
                        f"{checkpoint['model']}@{checkpoint['revision']}"
                        for repository in weights["repositories"]
                        for checkpoint in (repository, *repository.get("borrow", ()))
                    }
                ),
            },
            # The files that model units consist of and read, and the owner's own.
            "files": [
                {key: getattr(file, key) for key in ("path", "text", "mode", "owner", "group")}
                for file in (*self.files("services"), *self.plan.extra_files)
            ],
        }
        # Settings make another generation, too, so that a rollback undoes one deploy. Another
        # version of Lockstep that writes the same files does not.
        every = [
            (file.path, file.text, file.mode, file.owner, file.group)
            for file in (*self.all_files, *self.plan.extra_files)
            if not file.path.startswith(f"{PROGRAMS}/")
        ]
        made_by = {"lockstep": version(), "lock": lock_hash(self.pins)}
        return {**contents, **made_by, "digest": digest([contents, sorted(every)], 16)}

    @cached_property
    def all_files(self) -> list[ManagedFile]:
        """The managed files of all stages."""
        pulled_files = deployed_files(self.plan, self.pins, engine_id=self._engine)
        more = (*tls_unit.tls_files(self.plan), *stack.monitoring_files(self.plan))
        return [*pulled_files, *more, *self._specs(), self._served_weights()]

    @cached_property
    def paths(self) -> list[str]:
        """The paths of all files that this deploy owns."""
        return [file.path for file in self.all_files]

    @cached_property
    def unit_files(self) -> list[str]:
        """Names of the units among the files; a template has no unit of its own in systemd."""
        every = (PurePosixPath(file.path).name for file in self.all_files if file.check == "unit")
        return [name for name in every if "@." not in name]

    @cached_property
    def unit_programs(self) -> dict[str, list[str]]:
        """Each unit → paths of our modules that its service runs."""
        files = {PurePosixPath(file.path).name: file.text for file in self.all_files}
        return {
            name: paths for name in self.unit_files if (paths := modules_run_by_unit(files[name]))
        }

    def _served_weights(self) -> ManagedFile:
        """Return the file that names the weights the units read.

        It is written with the units, whereas weights.json says what to fetch. Until a rollout comes
        to a host, the host serves and may switch with its own.
        """
        spec = {**weights_spec(self.plan, self.pins), "endpoint": None}
        text = json.dumps(spec, indent=1) + "\n"
        return ManagedFile(SERVED_WEIGHTS, text, check="json", stage="services")

    def _specs(self) -> list[ManagedFile]:
        specs = {"weights": weights_spec(self.plan, self.pins), "engine": self.engine_spec}
        user = self.plan.settings.service_user
        own_files = [
            # The URL of a proxy or an index may hold a password, and the account that builds reads
            # the file.
            ManagedFile(
                f"{CONFIGURATION}/{name}.json",
                json.dumps(spec, indent=1) + "\n",
                mode="0640",
                group=user,
            )
            for name, spec in specs.items()
            if spec
        ]
        return own_files + [
            ManagedFile(value.requirements, value.text) for value in self.tool_environments.values()
        ]
