"""Inputs of the last deploys, kept beside the lock, so that a rollback knows what has changed.

The lock alone does not say it: targets, recipes and group data are files under version control.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from lockstep.host.intended import Intended
from lockstep.inventory.host import HostPlan

#: A login in a URL is no matter of a comparison.
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
#: Not what a generation is made of, or with a secret in it.
_LEFT_OUT = ("name", "lock", "login", "logins", "hub_token")
NONE = "none"
_THERE = "in the inventory"


@dataclass(frozen=True)
class Change:
    """One key that is another one now.

    Attributes:
        key: "targets.qwen.image", "recipe NAME", "host".
        old: Its value at the deploy.
        new: Its present value.
        hosts: The hosts that it is of.
        file: Where it stands.
    """

    key: str
    old: str
    new: str
    hosts: tuple[str, ...]
    file: str


def inputs(this: Intended) -> dict[str, Any]:
    """The digest of a host's generation, and what decides it by key."""
    return {"generation": this.generation["digest"], "data": data_of(this.plan)}


def data_of(plan: HostPlan) -> dict[str, str]:
    """What decides the generation of a host, beside the lock: key → value."""
    found: dict[str, str] = {}
    for item in fields(plan.settings):
        if item.name not in _LEFT_OUT:
            found |= _flat(item.name, getattr(plan.settings, item.name))
    for recipe in (recipe for target in plan.targets for recipe in target.recipes):
        text = recipe.path.read_bytes()
        found[f"recipe {recipe.name}"] = hashlib.sha256(text).hexdigest()[:12]
    return found


def _flat(key: str, value: object) -> dict[str, str]:
    if is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for name, item in value.items():
            found |= _flat(f"{key}.{name}", item)
        return found
    if value is None or value == ():
        return {}
    text = _LOGIN.sub("", str(value))
    if "environment" in key:
        # Of a variable nobody knows whether it is a secret.
        text = f"a value with SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return {key: text}


def changed(
    before: Mapping[str, Mapping[str, Any]],
    plans: Sequence[HostPlan],
    origins: Mapping[str, Mapping[str, str]],
    inventory: str,
) -> list[Change]:
    """Every key of the hosts that is another one than at a deploy, each once for all its hosts.

    Args:
        before: Host → `inputs` of then.
        plans: The hosts now.
        origins: Host → key of the inventory → the file that gives it.
        inventory: The inventory's own file.
    """
    now = {plan.name: plan for plan in plans}
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for host in dict.fromkeys((*before, *now)):
        if host not in now or host not in before:
            old, new = (_THERE if host in hosts else NONE for hosts in (before, now))
            found.setdefault(("host", old, new, inventory), []).append(host)
            continue
        was, data = before[host]["data"], data_of(now[host])
        paths = {
            f"recipe {recipe.name}": str(recipe.path)
            for target in now[host].targets
            for recipe in target.recipes
        }
        for key in sorted({*was, *data}):
            old, new = was.get(key, NONE), data.get(key, NONE)
            if old != new:
                file = paths.get(key) or origins.get(host, {}).get(key.split(".")[0], inventory)
                found.setdefault((key, old, new, file), []).append(host)
    return [
        Change(key, old, new, tuple(hosts), file) for (key, old, new, file), hosts in found.items()
    ]
