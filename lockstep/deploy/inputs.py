"""Inputs of the last deploys, kept beside the lock, so that a rollback can name the changes.

The lock alone does not have them: models, recipes and group data are files under version control.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeAlias

from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan

#: A login in a URL has no part in a comparison.
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
#: Settings that do not affect a generation, or that hold a secret.
_LEFT_OUT = ("name", "lock", "login", "logins", "hub_token")
NONE = "none"
_THERE = "in the inventory"


@dataclass(frozen=True)
class InputChange:
    """One key with a changed value.

    Attributes:
        key: "models.qwen.image", "recipe NAME", "host".
        old: Its value at the deploy.
        new: Its present value.
        hosts: The hosts with that change.
        file: The file with the key.
    """

    key: str
    old: str
    new: str
    hosts: tuple[str, ...]
    file: str


def inputs(desired_state: DesiredState) -> dict[str, Any]:
    """Return the digest of a host's generation, and the inputs that decide it by key."""
    return {
        "generation": desired_state.generation_document["digest"],
        "data": data_of(desired_state.plan),
    }


def data_of(plan: HostPlan) -> dict[str, str]:
    """Return the values beside the lock that decide a host's generation, by key."""
    texts = {key: text for key, text, _ in _flat_settings(plan)}
    for recipe in (recipe for model in plan.models for recipe in model.recipes):
        text = recipe.path.read_bytes()
        texts[f"recipe {recipe.name}"] = hashlib.sha256(text).hexdigest()[:12]
    return texts


#: The key, its value as text, and whether that value is the default.
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
        defaults = default if isinstance(default, Mapping) else {}
        for name, inner_value in value.items():
            yield from _flat(f"{key}.{name}", inner_value, defaults.get(name, MISSING))
    elif value is not None and value != ():
        text = _LOGIN.sub("", str(value))
        if "environment" in key:
            # A variable may hold a secret.
            text = f"a value with SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        yield key, text, value == default


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def input_changes(
    earlier_inputs: Mapping[str, Mapping[str, Any]],
    plans: Sequence[HostPlan],
    origins: Mapping[str, Mapping[str, str]],
    inventory: str,
) -> list[InputChange]:
    """Return every key that has changed since a deploy, once for all hosts with that change.

    A whole part that came or went, such as a model, is one key.

    Args:
        earlier_inputs: The `inputs` of that deploy by host.
        plans: The hosts now.
        origins: The file that sets each key, by host and key of the inventory.
        inventory: The inventory's own file.
    """
    now = {plan.name: plan for plan in plans}
    hosts_by_key: dict[tuple[str, str, str, str], list[str]] = {}
    for host in dict.fromkeys((*earlier_inputs, *now)):
        if host not in now or host not in earlier_inputs:
            old, new = (_THERE if host in hosts else NONE for hosts in (earlier_inputs, now))
            hosts_by_key.setdefault(("host", old, new, inventory), []).append(host)
            continue
        was, data = earlier_inputs[host]["data"], data_of(now[host])
        unsaid = {key for key, _, is_default in _flat_settings(now[host]) if is_default}
        paths = {
            f"recipe {recipe.name}": str(recipe.path)
            for model in now[host].models
            for recipe in model.recipes
        }
        for key, old, new in _differing(was, data, unsaid):
            file = paths.get(key) or origins.get(host, {}).get(key.split(".")[0], inventory)
            hosts_by_key.setdefault((key, old, new, file), []).append(host)
    return [
        InputChange(key, old, new, tuple(hosts), file)
        for (key, old, new, file), hosts in hosts_by_key.items()
    ]


def _differing(
    was: Mapping[str, str], data: Mapping[str, str], unsaid: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield key, old and new value; `unsaid` are the keys that have their default value now."""
    single: dict[str, tuple[str, str]] = {}
    for key in sorted({*was, *data}):
        old, new = was.get(key, NONE), data.get(key, NONE)
        whole = ".".join(key.split(".")[:2])
        if old == new:
            continue
        if key.startswith("models.") and not _has(was if old == NONE else data, whole):
            old, new = (NONE if side == NONE else _THERE for side in (old, new))
            single[whole] = (old, new)
        elif NONE in (old, new) and (key in unsaid or key.startswith("recipe ")):
            # Another release of Lockstep may read another key, and a recipe may come with its
            # model.
            continue
        else:
            single[key] = (old, new)
    for key, (old, new) in single.items():
        yield key, old, new


def _has(keys: Iterable[str], whole: str) -> bool:
    return any(key.startswith(f"{whole}.") for key in keys)
