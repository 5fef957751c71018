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
from lockstep.evidence.names import host_label, known_words
from lockstep.evidence.parts import NEEDED, PARTS, EvidencePart
from lockstep.evidence.scrub import scrub
from lockstep.files.remote_exec import Reader, reader_name
from lockstep.fit import catalogue
from lockstep.fit.fit import fit
from lockstep.fleet.hosts import Host, choose
from lockstep.host.desired_state import lock_hash
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile
from lockstep.lock.pins import Pins
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.facts import (
    deploy_records,
    docker,
    gpu_health,
    identifying_words,
    logged_events,
    machine,
    packages,
)
from lockstep.onhost.facts import evidence as facts
from lockstep.units.model_variants import unit_names

# The items of these kinds need a word in front to be understood.
_WORDS = {
    **{"CDI driver": "made for driver:", "DGX factory": "factory:"},
    **{"apt hold": "held:", "apt package": "package"},
}
_READERS: tuple[Reader, ...] = (
    *(
        machine.driver,
        machine.kernel,
        machine.firmware,
        machine.software_releases,
        machine.memory_and_mounts,
    ),
    *(
        facts.device_files_and_gpu,
        facts.toolkit,
        facts.apt_activity,
        facts.past_updates,
        facts.services,
        facts.memory,
    ),
    *(facts.interfaces, facts.oom_scores, facts.installed_engines, docker.daemon, packages.read),
    # `identifying_words.read` gives the words that name this host and its people, to be scrubbed.
    *(gpu_health.sensor_values, gpu_health.findings),
    *(
        logged_events.last_start_lines,
        logged_events.kernel,
        deploy_records.generation_and_accepted_speeds,
        identifying_words.read,
    ),
)


@dataclass(frozen=True)
class Evidence:
    """The document that may be sent on, and the number of hosts that answered.

    Attributes:
        missing: The missing parts by the host's real name, with the reason, for the user.
    """

    document: dict[str, Any]
    missing: tuple[tuple[str, str], ...]
    answer_count: int

    @property
    def code(self) -> int:
        """Exit code: 0 everything, 1 something is missing, 2 no host answered."""
        return 2 if not self.answer_count else 1 if self.missing else 0


def gather(path: Path, *, limit: Sequence[str] = (), password: str | None = None) -> Evidence:
    """Gather the evidence of the hosts of an inventory file; a lock is not needed.

    Raises:
        LockstepError: the inventory is wrong, or lacks a host of ``limit``.
    """
    every, selected_hosts = choose(path, limit)
    host_questions = [
        hosts.HostQuestion(host.login, questions(host.plan), sudo=host.with_sudo, password=password)
        for host in selected_hosts
    ]
    lock = lockfile.load(inventories.lock_path(path, [host.plan for host in every]))
    lock_text = lock_hash(lock) if lock != Pins() else "none"
    return judge(every, hosts.take_all(host_questions), lock=lock_text)


def questions(plan: HostPlan) -> dict[str, Any]:
    """Return the questions to one host, by the name of the reader.

    No question needs a lock, so a wiped Spark can answer them.
    """
    arguments = "|".join(name for engine in ENGINES.values() for name in engine.arguments)
    tells = (logged_events.TELLS, *(engine.tells for engine in ENGINES.values()))
    question = {
        # The key of hashes that `diff` compares. Evidence does not show the hashes.
        "key": secrets.token_hex(32),
        "others": True,
        "max_clock_mhz": plan.settings.gpu.max_clock_mhz,
        "units": list(unit_names(plan.models)),
        "engines": plan.settings.paths.engines,
        "packages": "|".join(engine.packages for engine in ENGINES.values() if engine.packages),
        "tells": "|".join(filter(None, tells)),
        "arguments": rf"\b(?:{arguments})=(?:'[\w.-]*'|[\w.+-]+)",
    }
    return {reader_name(reader): question for reader in _READERS}


def judge(
    every: Sequence[Host],
    snapshots: Sequence[hosts.HostSnapshot],
    *,
    lock: str,
    now: float | None = None,
) -> Evidence:
    """Return the evidence from the answers of some of the hosts. Pure.

    Args:
        every: Every host of the inventory, asked or not.
        snapshots: The answers.
        lock: Hash of the lock here, "none" without one.
        now: Seconds since the epoch; None: now.
    """
    answers = {
        snapshot.host: snapshot.snapshot for snapshot in snapshots if snapshot.snapshot is not None
    }
    words_by_host = {
        name: answer["answers"].get("identifying_words", {}) for name, answer in answers.items()
    }
    labels = {host.name: host_label(number) for number, host in enumerate(every)}
    needs = {host.name: {NEEDED: dict(_needs(host.plan))} for host in every}
    missing = [
        (snapshot.host, snapshot.fault) for snapshot in snapshots if snapshot.snapshot is None
    ]
    for name, answer in answers.items():
        missing += [(name, f"{part}: {why}") for part, why in answer["faults"].items()]
    # Without a host's own names nobody could remove them from its answers.
    shown_facts = {
        name: {**answer, "facts": answer["facts"] | needs[name]}
        for name, answer in answers.items()
        if words_by_host[name]
    }
    document = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)),
        "lockstep": version(),
        "lock": lock,
        "hosts": [
            _host(
                labels[snapshot.host],
                shown_facts.get(snapshot.host),
                snapshot.fault or "its names are not known",
            )
            for snapshot in snapshots
        ],
    }
    return Evidence(
        scrub(document, known_words(every, words_by_host)), tuple(missing), len(answers)
    )


def _needs(plan: HostPlan) -> Iterator[tuple[str, str]]:
    """Yield each model's need of memory, as `lockstep plan` prints it."""
    for model in plan.models:
        for name, _, recipe in model.forms:
            try:
                model_serving = model.serving(recipe)
            except RecipeError:
                continue
            host_fit = fit(
                recipe,
                catalogue.knowledge(),
                machine=catalogue.machine_of(plan.settings),
                asked=model_serving,
                minimums=model.data.memory_minimum.ends,
            )
            needs = rounded_up(host_fit.needs_gib)
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


def _part(part: EvidencePart, answer: Mapping[str, Any]) -> dict[str, Any]:
    part_facts = answer["facts"]
    return {
        "facts": [
            {"what": f"{_WORDS[kind]} {item}" if kind in _WORDS else item, "found": value}
            for kind in part.kinds
            for item, value in sorted(part_facts.get(kind, {}).items())
            if part.is_wanted(kind, item)
        ],
        "lines": [
            {"about": about, "text": text.splitlines()}
            for about, text in part_facts.get("lines", {}).items()
            if about.startswith(part.lines)
        ],
    }
