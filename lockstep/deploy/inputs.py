"""Inputs of the last deploys, kept beside the lock, so that a rollback knows what has changed.

The lock alone does not say it: targets, recipes and group data are files under version control.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeAlias

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
    found = {key: text for key, text, _ in _flat_settings(plan)}
    for recipe in (recipe for target in plan.targets for recipe in target.recipes):
        text = recipe.path.read_bytes()
        found[f"recipe {recipe.name}"] = hashlib.sha256(text).hexdigest()[:12]
    return found


#: Key, value as text, and whether that is what the key has where nobody gives one.
_Flat: TypeAlias = Iterator[tuple[str, str, bool]]


def _flat_settings(plan: HostPlan) -> _Flat:
    for item in fields(plan.settings):
        if item.name not in _LEFT_OUT:
            yield from _flat(item.name, getattr(plan.settings, item.name), _default(item))


def _flat(key: str, value: object, default: object) -> _Flat:
    if is_dataclass(value):
        for item in fields(value):
            yield from _flat(f"{key}.{item.name}", getattr(value, item.name), _default(item))
    elif isinstance(value, Mapping):
        known = default if isinstance(default, Mapping) else {}
        for name, each in value.items():
            yield from _flat(f"{key}.{name}", each, known.get(name, MISSING))
    elif value is not None and value != ():
        text = _LOGIN.sub("", str(value))
        if "environment" in key:
            # Of a variable nobody knows whether it is a secret.
            text = f"a value with SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        yield key, text, value == default


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def changed(
    before: Mapping[str, Mapping[str, Any]],
    plans: Sequence[HostPlan],
    origins: Mapping[str, Mapping[str, str]],
    inventory: str,
) -> list[Change]:
    """Every key of the hosts that is another one than at a deploy, each once for all its hosts.

    What came or went as a whole, as a target does, is one key.

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
        unsaid = {key for key, _, is_default in _flat_settings(now[host]) if is_default}
        paths = {
            f"recipe {recipe.name}": str(recipe.path)
            for target in now[host].targets
            for recipe in target.recipes
        }
        for key, old, new in _differing(was, data, unsaid):
            file = paths.get(key) or origins.get(host, {}).get(key.split(".")[0], inventory)
            found.setdefault((key, old, new, file), []).append(host)
    return [
        Change(key, old, new, tuple(hosts), file) for (key, old, new, file), hosts in found.items()
    ]


def _differing(
    was: Mapping[str, str], data: Mapping[str, str], unsaid: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Key, old and new value; `unsaid` are keys that have the value of nobody's word now."""
    single: dict[str, tuple[str, str]] = {}
    for key in sorted({*was, *data}):
        old, new = was.get(key, NONE), data.get(key, NONE)
        whole = ".".join(key.split(".")[:2])
        if old == new:
            continue
        if key.startswith("targets.") and not _has(was if old == NONE else data, whole):
            old, new = (NONE if side == NONE else _THERE for side in (old, new))
            single[whole] = (old, new)
        elif NONE in (old, new) and (key in unsaid or key.startswith("recipe ")):
            # A release of Lockstep that reads another key, or a recipe that came with its target.
            continue
        else:
            single[key] = (old, new)
    for key, (old, new) in single.items():
        yield key, old, new


def _has(keys: Iterable[str], whole: str) -> bool:
    return any(key.startswith(f"{whole}.") for key in keys)
