"""What all tasks of one run share: each host's plan, the pins, and the facts of preflight."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from pyinfra import host, logger, state
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_host

from lockstep import inventory, pins, preflight
from lockstep.engine_id import engine_id
from lockstep.errors import LockstepError
from lockstep.resolve import resolve
from lockstep.specs import engine_spec, weights_spec
from lockstep.wanted import wanted
from tasks import report
from tasks.facts.host import Preflight


class Refusal(PyinfraError):
    """The run ends before the first change, with a message for the operator."""


@dataclass(frozen=True)
class Run:
    """One host's part of this run."""

    plan: inventory.HostPlan
    pins: pins.Pins

    @property
    def engine_id(self) -> str:
        """Name of the engine environment: a hash of what it contains."""
        return engine_id(self.plan.settings, self.pins)

    @property
    def engine_spec(self) -> dict[str, Any]:
        """What `engine_build.py` reads on the host."""
        return engine_spec(self.plan, self.pins)

    @property
    def weights_spec(self) -> dict[str, Any]:
        """What `fetch_weights.py` reads on the host."""
        return weights_spec(self.plan, self.pins)


_lock = threading.Lock()
_runs: dict[str, Run] = {}


def current() -> Run:
    """The current host's part of this run."""
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
        report.watch(state)
        try:
            plans = {each: _plan(each) for each in state.inventory.iter_active_hosts()}
            resolved = _resolved(list(plans.values()))
        except LockstepError as fault:
            raise Refusal(f"{fault}\nNothing was touched on any host.") from None
        _refuse_findings(plans, resolved)
        for each, plan in plans.items():
            _runs[each.name] = Run(plan, resolved)


def _plan(each: Any) -> inventory.HostPlan:
    return inventory.plan(each.name, each.data.dict())


def record_path() -> Path:
    """The record of pins: one per inventory, beside the deploy; LOCKSTEP_PINS names another."""
    named = os.environ.get("LOCKSTEP_PINS")
    if named:
        return Path(named)
    groups = [group for group in state.inventory.groups if group not in ("all",)]
    here = [
        group for group in groups if (inventory.REPOSITORY / f"inventories/{group}.py").exists()
    ]
    return inventory.REPOSITORY / "pins" / f"{here[0] if here else 'hosts'}.yaml"


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
    logger.info(
        f"    recorded in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
    )
    return resolved


def _refuse_findings(plans: dict[Any, inventory.HostPlan], resolved: pins.Pins) -> None:
    facts: dict[Any, Any] = {}

    def read(each: Any, plan: inventory.HostPlan) -> None:
        with ctx_host.use(each):
            facts[each] = each.get_fact(Preflight, asked=preflight.questions(plan, resolved))

    gevent.joinall([gevent.spawn(read, each, plan) for each, plan in plans.items()])
    findings = []
    for each, plan in plans.items():
        if facts.get(each):
            findings += preflight.findings(plan, resolved, facts[each])
    if findings:
        logger.info(preflight.table(findings))
    if any(finding.severity == "error" for finding in findings):
        raise Refusal(
            "preflight found what would make this deploy fail; nothing was touched on any host.\n"
            "    Mend it, or deploy to the other hosts with --limit HOST."
        )
