"""The evidence of an inventory: the answers of all hosts, put together and scrubbed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.version import version
from lockstep.drift import hosts
from lockstep.evidence.names import host_label, known
from lockstep.evidence.parts import NEEDED, PARTS, Part
from lockstep.evidence.scrub import scrubbed
from lockstep.files.sent import Reader, named
from lockstep.fit import catalogue
from lockstep.fit.fit import fit
from lockstep.fleet.hosts import Host, choose
from lockstep.host.intended import lock_hash
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile
from lockstep.lock.pins import Pins
from lockstep.onhost.core.need import rounded_up
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.facts import docker, gpu, history, machine, own_names, packages, records
from lockstep.onhost.facts import evidence as facts
from lockstep.recipes.sizing import serving
from lockstep.units.variants import unit_names

# Of these kinds the item alone does not say what it is.
_WORDS = {
    **{"CDI driver": "made for driver:", "DGX factory": "factory:"},
    **{"apt hold": "held:", "apt package": "package"},
}
_READERS: tuple[Reader, ...] = (
    *(machine.driver, machine.kernel, machine.firmware, machine.system, machine.memory),
    *(facts.devices, facts.toolkit, facts.apt, facts.updates, facts.services, facts.memory),
    *(facts.interfaces, facts.scores, facts.engine, docker.daemon, packages.every),
    # Without the last one nobody could tell which words name this host and the people on it.
    *(gpu.now, gpu.findings),
    *(history.starts, history.kernel, records.deployed, own_names.read),
)


@dataclass(frozen=True)
class Evidence:
    """What may be sent on, and how many hosts answered.

    Attributes:
        missing: (host by its real name, what is missing and why), for the one who asked.
    """

    document: dict[str, Any]
    missing: tuple[tuple[str, str], ...]
    answered: int

    @property
    def code(self) -> int:
        """Exit code: 0 everything, 1 something is missing, 2 no host answered."""
        return 2 if not self.answered else 1 if self.missing else 0


def gather(path: Path, *, limit: Sequence[str] = (), password: str | None = None) -> Evidence:
    """The evidence of the hosts of an inventory file; a lock is not needed.

    Raises:
        LockstepError: the inventory is wrong, or lacks a host of ``limit``.
    """
    every, chosen = choose(path, limit)
    asked = [
        hosts.Asked(host.login, questions(host.plan), sudo=host.with_sudo, password=password)
        for host in chosen
    ]
    lock = lockfile.load(inventories.lock_path(path, [host.plan for host in every]))
    told = lock_hash(lock) if lock != Pins() else "none"
    return judge(every, hosts.take_all(asked), lock=told)


def questions(plan: HostPlan) -> dict[str, Any]:
    """Name of a reader → what it is asked of one host: nothing of it needs a lock, so a wiped Spark
    can answer it."""
    arguments = "|".join(name for engine in ENGINES.values() for name in engine.arguments)
    tells = (history.TELLS, *(engine.tells for engine in ENGINES.values()))
    asked = {
        # The key of hashes that `diff` compares; here they are not shown.
        "key": secrets.token_hex(32),
        "max_clock_mhz": plan.settings.gpu.max_clock_mhz,
        "units": list(unit_names(plan.targets)),
        "engines": plan.settings.paths.engines,
        "packages": "|".join(engine.packages for engine in ENGINES.values() if engine.packages),
        "tells": "|".join(filter(None, tells)),
        "arguments": rf"\b(?:{arguments})=(?:'[\w.-]*'|[\w.+-]+)",
    }
    return {named(reader): asked for reader in _READERS}


def judge(
    every: Sequence[Host], taken: Sequence[hosts.Taken], *, lock: str, now: float | None = None
) -> Evidence:
    """The evidence from the answers of some of the hosts. Pure.

    Args:
        every: Every host of the inventory, asked or not.
        taken: The answers.
        lock: Hash of the lock here, "none" without one.
        now: Seconds since the epoch; None: now.
    """
    answers = {each.host: each.snapshot for each in taken if each.snapshot is not None}
    told = {name: answer["answers"].get("own_names", {}) for name, answer in answers.items()}
    labels = {host.name: host_label(number) for number, host in enumerate(every)}
    needs = {host.name: {NEEDED: dict(_needs(host.plan))} for host in every}
    missing = [(each.host, each.fault) for each in taken if each.snapshot is None]
    for name, answer in answers.items():
        missing += [(name, f"{part}: {why}") for part, why in answer["faults"].items()]
    # Without a host's own names nobody could take them out of what it says.
    shown = {
        name: {**answer, "facts": answer["facts"] | needs[name]}
        for name, answer in answers.items()
        if told[name]
    }
    document = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)),
        "lockstep": version(),
        "lock": lock,
        "hosts": [
            _host(labels[each.host], shown.get(each.host), each.fault or "its names are not known")
            for each in taken
        ],
    }
    return Evidence(scrubbed(document, known(every, told)), tuple(missing), len(answers))


def _needs(plan: HostPlan) -> Iterator[tuple[str, str]]:
    """Beside what a host has available: what each target asks for, as `lockstep plan` prints it."""
    for target in plan.targets:
        for name, _, recipe in target.forms:
            try:
                asked = serving(recipe, target.overrides(recipe))
            except RecipeError:
                continue
            found = fit(
                recipe,
                catalogue.knowledge(),
                machine=catalogue.machine_of(plan.settings),
                asked=asked,
                floors=target.data.memory_floor.ends,
            )
            needs = rounded_up(found.needs_gib)
            yield f"{name} needs GiB to start", needs


def _host(label: str, answer: Mapping[str, Any] | None, why: str) -> dict[str, Any]:
    if answer is None:
        return {"name": label, "answered": False, "why": why, "missing": [], "parts": {}}
    return {
        "name": label,
        "answered": True,
        "why": "",
        "missing": [f"{part}: {fault}" for part, fault in sorted(answer["faults"].items())],
        "parts": {part.key: _part(part, answer) for part in PARTS},
    }


def _part(part: Part, answer: Mapping[str, Any]) -> dict[str, Any]:
    found = answer["facts"]
    return {
        "facts": [
            {"what": f"{_WORDS[kind]} {item}" if kind in _WORDS else item, "found": value}
            for kind in part.kinds
            for item, value in sorted(found.get(kind, {}).items())
            if part.wanted(kind, item)
        ],
        "lines": [
            {"about": about, "text": text.splitlines()}
            for about, text in found.get("lines", {}).items()
            if about.startswith(part.lines)
        ],
    }
