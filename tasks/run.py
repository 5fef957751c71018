"""What all tasks of one run share: each host's plan, the pins, and the facts of preflight."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gevent
from pyinfra import host, logger, state
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_host

from lockstep import catalogue, inventory, pins, preflight
from lockstep.artefacts import artefacts
from lockstep.closing import findings_table
from lockstep.engine_id import engine_id
from lockstep.errors import LockstepError, paragraph
from lockstep.findings import Finding
from lockstep.image_questions import image_questions
from lockstep.images import pinned_reference
from lockstep.layout import model_units
from lockstep.managed import CONFIGURATION, ManagedFile, Stage
from lockstep.plan import plan_hosts
from lockstep.recipes import Recipe
from lockstep.resolve import resolve
from lockstep.specs import engine_spec, weights_spec
from lockstep.variants import FALLBACK, variants
from lockstep.wanted import needs_engine, wanted
from tasks import report
from tasks.facts.host import Preflight


class Refusal(PyinfraError):
    """The run ends before the first change, with a message for the operator."""


@dataclass(frozen=True)
class Run:
    """One host's part of this run: everything derived from its plan and the pins."""

    plan: inventory.HostPlan
    pins: pins.Pins

    @cached_property
    def engine_id(self) -> str:
        """Name of the engine environment: a hash of what it contains."""
        return engine_id(self.plan.settings, self.pins)

    @cached_property
    def engine_spec(self) -> dict[str, Any] | None:
        """What `engine_build.py` reads on the host; None where no target runs in a venv."""
        return engine_spec(self.plan, self.pins) if needs_engine(self.plan.targets) else None

    @cached_property
    def images(self) -> list[str]:
        """References by digest of all images of the host."""
        sources = self.plan.settings.sources
        names = preflight.images_of(self.plan)
        return [pinned_reference(name, sources, self.pins) for name in names]

    @cached_property
    def engine_images(self) -> dict[str, tuple[str, str]]:
        """Digest → (reference, engine) of the images that hold an engine."""
        sources = self.plan.settings.sources
        return {
            self.pins.images[image].digest: (
                pinned_reference(image, sources, self.pins),
                str(recipe.engine),
            )
            for _, recipe, image in self._variants()
            if image
        }

    def _variants(self) -> Iterator[tuple[str, Recipe, str | None]]:
        """Name, recipe and image of every target and every fallback."""
        for target in self.plan.targets:
            for suffix, recipe in zip(("", FALLBACK), target.recipes, strict=False):
                yield target.name + suffix, recipe, target.image_of(recipe)

    @property
    def engine_question(self) -> dict[str, Any]:
        """What to ask the probe `engines`."""
        spec = self.engine_spec or {"home": "/nonexistent", "current": "/nonexistent"}
        images = {digest: digest for digest in self.engine_images}
        return {"home": spec["home"], "current": spec["current"], "images": images}

    @property
    def webui_units(self) -> list[str]:
        """The unit of Open WebUI, where it is wanted."""
        webui = self.plan.settings.webui
        return [f"{webui.unit}.service"] if webui.enabled else []

    @cached_property
    def model_units(self) -> list[str]:
        """Units of all targets and their fallbacks."""
        return model_units(self.files("services", dict.fromkeys(self.plan.settings.targets)))

    def versions(self, engines: dict[str, Any]) -> dict[str, str | None]:
        """Target or fallback → version that its engine reported on this host, None before it did.

        Args:
            engines: Answer of the probe `engines`.
        """
        found: dict[str, str | None] = {}
        for name, _, image in self._variants():
            if image:
                record = engines["images"].get(self.pins.images[image].digest)
            else:
                record = engines["check"]
            found[name] = (record or {}).get("version")
        return found

    def image_questions(self, engines: dict[str, Any]) -> dict[str, str]:
        """Digest → what to ask its engine; only for images whose version is known.

        Args:
            engines: Answer of the probe `engines`.
        """
        versions = self.versions(engines)
        found = variants(
            self.plan.settings,
            self.plan.targets,
            self.pins,
            engine_id=self.engine_id if self.engine_spec else "",
            engine_versions=versions,
        )
        return image_questions(item for item in found if versions[item.name])

    def files(self, stage: Stage, versions: dict[str, str | None]) -> list[ManagedFile]:
        """The managed files of one stage of the deploy ("base", "services", "switch", "webui")."""
        chosen = [file for file in self._every(versions) if file.stage == stage]
        return chosen + self._specs() if stage == "base" else chosen

    @cached_property
    def paths(self) -> set[str]:
        """Every path that this deploy owns."""
        return {file.path for file in self._every(dict.fromkeys(self.plan.settings.targets))}

    def _every(self, versions: dict[str, str | None]) -> tuple[ManagedFile, ...]:
        return artefacts(
            self.plan.settings,
            self.plan.targets,
            self.pins,
            engine_id=self.engine_id if self.engine_spec else "",
            engine_versions=versions,
        )

    def _specs(self) -> list[ManagedFile]:
        specs = {"weights": weights_spec(self.plan, self.pins), "engine": self.engine_spec}
        user = self.plan.settings.service_user
        return [
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


_lock = threading.Lock()
_runs: dict[str, Run] = {}
_refused: list[Refusal] = []


def current() -> Run:
    """The current host's part of this run; a task that runs alone begins the run itself."""
    if host.name not in _runs:
        begin()
    return _runs[host.name]


def begin() -> None:
    """Plan all hosts, resolve what has no pin yet, and refuse what cannot work.

    Runs once for all hosts, before the first change on any; the other hosts wait for it.

    Raises:
        Refusal: a finding that stops the deploy; nothing was touched.
    """
    with _lock:
        if _runs:
            return
        if _refused:
            raise _refused[0]
        try:
            _begin()
        except Refusal as refusal:
            _refused.append(refusal)
            raise


def _begin() -> None:
    report.watch(state)
    try:
        hosts = [each for each in state.inventory if each in state.active_hosts]
        plans = {each: _plan(each) for each in hosts}
        _refuse(_planned(list(plans.values())), "the plan")
        resolved = _resolved(list(plans.values()))
    except LockstepError as fault:
        raise Refusal(paragraph(f"{fault}\nNothing was touched on any host.")) from None
    _refuse_findings(plans, resolved)
    for each, plan in plans.items():
        _runs[each.name] = Run(plan, resolved)


def _plan(each: Any) -> inventory.HostPlan:
    return inventory.plan(each.name, each.data.dict())


def record_path() -> Path:
    """The record of pins of the inventory that is deployed to."""
    here = [
        group
        for group in state.inventory.groups
        if (inventory.REPOSITORY / f"inventories/{group}.py").exists()
    ]
    return inventory.record_path(here[0] if here else "hosts")


def _resolved(plans: list[inventory.HostPlan]) -> pins.Pins:
    path = record_path()
    known = pins.load(path) if path.exists() else pins.Pins()
    every = wanted([(plan.settings, plan.targets) for plan in plans])
    missing = pins.missing(every, known)
    if not missing:
        return known
    logger.info(f"--> Resolving what {path.name} does not pin yet...")
    first = plans[0].settings
    resolved = resolve(
        missing,
        known,
        sources=first.sources,
        proxy=first.proxy,
        report=lambda line: logger.info(f"    {line}"),
    )
    pins.save(path, resolved)
    logger.info(f"    recorded in {path.parent.name}/{path.name}")
    return resolved


def _refuse_findings(plans: dict[Any, inventory.HostPlan], resolved: pins.Pins) -> None:
    facts: dict[Any, Any] = {}

    def read(each: Any, plan: inventory.HostPlan) -> None:
        with ctx_host.use(each):
            facts[each] = each.get_fact(Preflight, asked=preflight.questions(plan, resolved))

    gevent.joinall([gevent.spawn(read, each, plan) for each, plan in plans.items()])
    findings = []
    for each, plan in plans.items():
        if not facts.get(each):
            report.failed(each.name, "Preflight | Ask the host what it is")
        else:
            findings += preflight.findings(plan, resolved, facts[each])
    _refuse(findings, "preflight")


def _planned(plans: list[inventory.HostPlan]) -> list[Finding]:
    """What speaks against the plan itself: fit, licences, flags, known-bad combinations."""
    record = pins.load(record_path())
    planned = plan_hosts(plans, record, catalogue.load(catalogue.FOLDER))
    return list(planned.findings)


def _refuse(findings: list[Finding], by: str) -> None:
    """Show findings; end the run when one of them is an error."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if findings and not errors:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        logger.info(f"--> {len(findings)} warning(s) by {by} (`lockstep plan` shows them): {codes}")
    if errors:
        logger.info("\n" + findings_table(errors))
        raise Refusal(
            f"{by} found what would make this deploy fail; nothing was touched on any host.\n"
            "    Mend it, or deploy to the other hosts with --limit HOST."
        )
