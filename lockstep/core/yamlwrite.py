"""YAML written for people: dataclasses in their own order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from yaml import SafeDumper as FastDumper
elif yaml.__with_libyaml__:
    # In a fifth of the time.
    from yaml import CSafeDumper as FastDumper
else:
    FastDumper = yaml.SafeDumper


def dump(value: Any) -> str:
    """A dataclass or mapping as YAML; what is flat stands on one line, so one line is one entry.

    Fields that are None, "", False or an empty mapping are left out, and lists that are empty as by
    default. Mappings are sorted, fields keep their order.
    """
    text: str = yaml.dump(
        _plain(value),
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return text


class _Dumper(FastDumper):
    """SafeDumper without anchors: an entry must be deletable without breaking another."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        named = (
            (item.name, said)
            for item in fields(value)
            if (said := getattr(value, item.name)) != () or item.default != ()
        )
        # `is`, because a size of 0 bytes equals False and must stay.
        left = {name: item for name, item in named if item is not None and item is not False}
        return {name: _plain(item) for name, item in left.items() if item not in ("", {})}
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
