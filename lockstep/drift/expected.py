"""The expected snapshot of a host, from inventory data and the lock alone."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lockstep.drift.question import system_units
from lockstep.files.managed_file import (
    API_KEY,
    HOME,
    OPERATORS_GROUP,
    TOOLS_VENV,
    UV_VENV,
    WEBUI_SECRETS,
    ManagedFile,
)
from lockstep.host.engine_questions import unasked
from lockstep.host.intended import Intended
from lockstep.host.specs import UV, check_wanted, weights_spec
from lockstep.lock.image_reference import PLATFORMS
from lockstep.preflight import dgx_os, gpu_access
from lockstep.snapshot.machine import UNTOLD
from lockstep.system.accounts import people
from lockstep.system.base_files import docker_generation
from lockstep.system.folders import HUB_TOKEN, folders, generation
from lockstep.system.tools import same_version
from lockstep.units.agent_unit import key_path

ANY = "present"
TAKEN = "takes the recipes"


@dataclass(frozen=True)
class Expectation:
    """One fact that a host must show.

    Attributes:
        kind: Kind of fact.
        item: What it is about.
        value: The value that is asked for, as it is shown.
        accepts: Whether another value than `value` will do; None: no other.
        if_there: Whether it is only asked for where the host shows this item at all.
    """

    kind: str
    item: str
    value: str
    accepts: Callable[[str], bool] | None = None
    if_there: bool = False

    def holds(self, found: str | None) -> bool:
        """Whether what a host shows is what is asked for."""
        if found is None:
            return self.if_there
        return found == self.value or (self.accepts is not None and self.accepts(found))


def expectations(
    this: Intended, snapshot: Mapping[str, Any], *, key: bytes
) -> Iterator[Expectation]:
    """Everything that inventory and lock ask of one host.

    Args:
        this: The host as it is to be.
        snapshot: Its own; what its engines said of themselves decides on command lines.
        key: Key of this run's hashes.
    """
    engines = snapshot["records"].get("engines") or {"check": None, "images": {}}
    files = this.all_files(this.moe_flags(engines))
    yield from _files(this, files, key)
    yield from _units(this, files)
    yield from _system(this, snapshot["facts"])
    yield from _accounts(this)
    yield from _engine(this)
    yield from _images(this)
    for repository in weights_spec(this.plan, this.pins)["repositories"]:
        yield _is("weights", f"{repository['model']}@{repository['revision'][:12]}", "complete")
    yield from _agreement(snapshot["facts"])


def answers(this: Intended, records: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the host's engines said about the recipes, as facts: {} before they were asked.

    Args:
        this: The host as it is to be.
        records: The snapshot's.
    """
    engines = records.get("engines")
    if not engines:
        return {}
    facts: dict[str, dict[str, str]] = {"image answer": {}, "engine": {}}
    silent = unasked(this.image_questions, engines["images"])
    for digest, (reference, _) in this.engine_images.items():
        asked = engines["images"].get(digest) and digest not in silent
        facts["image answer"][reference] = TAKEN if asked else "not asked about these recipes"
    if this.engine_spec:
        record = engines["check"] or {}
        asked = record.get("asked") == check_wanted(this.engine_spec)
        passed = asked and record.get("faults") == []
        facts["engine"]["answer"] = TAKEN if passed else "not asked about these recipes"
    return facts


def shared_keys(
    this: Intended, facts: Mapping[str, Mapping[str, Mapping[str, str]]]
) -> Iterator[Expectation]:
    """That a host has the keys of its clusters as their other members have them.

    The deploy carries a key from the first member to the others: the lowest rank counts that shows
    one. That a key is missing, `expectations` asks.

    Args:
        this: The host as it is to be.
        facts: Host → kind → item → value, of all hosts that answered.
    """
    for group in this.plan.groups:
        path = key_path(group.name)
        found = (facts.get(each.name, {}).get("cluster key", {}) for each in group.members)
        first = next((keys[path] for keys in found if path in keys), None)
        if first is not None:
            yield Expectation("cluster key", path, first, if_there=True)


def _is(kind: str, item: str, value: str) -> Expectation:
    return Expectation(kind, item, value)


def _there(kind: str, item: str) -> Expectation:
    return Expectation(kind, item, ANY, accepts=lambda _: True)


def _files(this: Intended, files: list[ManagedFile], key: bytes) -> Iterator[Expectation]:
    for file in files:
        sealed = hmac.new(key, file.text.encode(), hashlib.sha256).hexdigest()[:32]
        yield _is("file", file.path, sealed)
        owner = f"{file.mode} {file.owner}:{file.group}"
        yield Expectation("file mode", file.path, owner, if_there=True)
    settings = this.plan.settings
    for folder in folders(settings):
        yield _is("folder", folder.path, f"{folder.mode} {folder.owner}:{folder.group}")
    if this.key_users:
        yield _is("secret", API_KEY, "0600 root:root")
    if settings.webui.enabled:
        yield _is("secret", WEBUI_SECRETS, "0600 root:root")
        for name in ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_EMAIL", "WEBUI_ADMIN_PASSWORD"):
            yield _is("secret entry", f"{WEBUI_SECRETS} {name}", "set")
    for group in this.plan.groups:
        yield _is("secret", key_path(group.name), "0600 root:root")
    readable = f"0640 root:{settings.service_user}"
    yield Expectation("hub token mode", HUB_TOKEN, readable, if_there=True)


def _units(this: Intended, files: list[ManagedFile]) -> Iterator[Expectation]:
    for file in files:
        if file.check != "unit":
            continue
        name = PurePosixPath(file.path).name
        yield _is("unit", name, "loaded")
        yield Expectation("unit path", name, file.path, if_there=True)
        # What has a place in the boot runs; a model has none.
        at_boot = "\n[Install]\n" in file.text
        yield Expectation("boot", name, "yes" if at_boot else "no", if_there=True)
        if at_boot:
            yield _is("running", name, "yes")
        wanted = generation(files, name)
        if wanted:
            yield Expectation("generation", name, wanted, if_there=True)
    for name in system_units(this):
        yield _is("system service", name, "yes")
    docker = docker_generation(this.plan.settings)
    yield Expectation("generation", "docker.service", docker, if_there=True)


def _system(this: Intended, facts: Mapping[str, Mapping[str, str]]) -> Iterator[Expectation]:
    settings, wanted = this.plan.settings, this.plan.settings.expected
    for name in settings.packages:
        yield _there("apt package", name)
    for name, value in settings.sysctls.items():
        yield _is("sysctl", name, value)
    yield _is("kernel", "architecture", wanted.architecture)
    yield _is("kernel", "reboot pending", "no")
    if wanted.dgx_os:
        text = f"DGX OS {wanted.dgx_os}"
        key = dgx_os.deciding(facts.get("DGX OS", {}))
        yield Expectation("DGX OS", key, text, lambda found: dgx_os.matches(found, wanted.dgx_os))
    yield _is("CUDA", "nvcc", wanted.cuda_toolkit)
    yield _there("CUDA", "ptxas")
    yield _is("driver", "nvidia-smi", "answers")
    yield Expectation("driver", "compute capability", wanted.compute_capability, if_there=True)
    least = wanted.memory_gib
    yield Expectation(
        "memory", "MemTotal GiB", f"{least} or more", lambda found: _number(found) >= least
    )
    most = wanted.clock_skew_s
    yield Expectation(
        "clock offset", "seconds", f"at most {most:.0f}", lambda found: abs(_number(found)) <= most
    )
    yield _is("link", UV, f"{UV_VENV}/bin/uv")
    for link, venv in ((UV_VENV, "uv"), (TOOLS_VENV, "tools")):
        yield _is("link", link, this.tools[venv].folder)
    for venv, environment in this.tools.items():
        for name, version in environment.versions.items():
            yield Expectation("tools package", f"{venv} {name}", version, _spelt(version))


def _number(found: str) -> float:
    """The number at the beginning of a fact; not a number where there is none."""
    try:
        return float(found.partition(" ")[0])
    except ValueError:
        return math.nan


def _accounts(this: Intended) -> Iterator[Expectation]:
    settings = this.plan.settings
    yield _there("group", OPERATORS_GROUP)
    yield _there("account", settings.service_user)
    yield _is("account home", settings.service_user, HOME)
    yield _is("account shell", settings.service_user, "/usr/sbin/nologin")
    yield _is("right", f"{settings.service_user} in docker", "yes")
    for person in people(settings):
        for group in person.groups:
            yield _is("right", f"{person.name} in {group}", "yes")


def _engine(this: Intended) -> Iterator[Expectation]:
    spec = this.engine_spec
    if spec is None:
        return
    yield _is("engine", "current", spec["id"])
    yield _is("engine", "installation", "whole")
    yield _is("engine", "python", spec["python"])
    for name in ("vllm", "transformers"):
        source = spec[name]
        if source:
            # Its version is made of the commit when it is built.
            yield _there("engine package", name)
            yield _is("engine", f"{name} commit", source["commit"])
            yield _is("engine", f"{name} from", f"file://{spec['home']}/{name}")
            yield _is("checkout", f"{spec['home']}/{name}", "clean")
    for name, version in spec["expected"].items():
        yield Expectation("engine package", name, version, _spelt(version))
    yield _is("engine", "answer", TAKEN)


def _spelt(version: str) -> Callable[[str], bool]:
    """The same version in another spelling."""
    return lambda found: same_version(found, version)


def _images(this: Intended) -> Iterator[Expectation]:
    architecture = PLATFORMS[this.plan.settings.expected.architecture].partition("/")[2]
    for reference in this.images:
        yield _is("image", reference, architecture)
    for reference, _ in this.engine_images.values():
        yield _is("image answer", reference, TAKEN)


def _agreement(facts: Mapping[str, Mapping[str, str]]) -> Iterator[Expectation]:
    """What must agree with the driver of the same host, and how containers come to the GPU."""
    version = facts.get("driver", {}).get("version")
    specifications = facts.get("CDI driver", {})
    docker = facts.get("docker", {})
    hooks = [hook for hook in gpu_access.HOOKS if f"hook {hook}" in docker]
    devices = [item.removeprefix("device ") for item in docker]
    if gpu_access.way(docker.get("version"), hooks, devices) is None:
        yield _is("docker", f"hook {gpu_access.HOOK}", ANY)
    if version:
        yield Expectation("driver", "loaded module", version, if_there=True)
        for path in specifications:
            yield Expectation("CDI driver", path, version, lambda found: found == UNTOLD)
