"""The keys of persons on all Sparks of an inventory: asked for, given, compared."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, at_once
from lockstep.onhost.core import schema
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.usage import Total

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Held:
    """What one Spark holds.

    Attributes:
        host: Its name.
        entries: Person → entry.
        usage: Person → what was asked for there.
        fault: Why it is not known; "" where it is.
    """

    host: str
    entries: Mapping[str, keys.Entry] = field(default_factory=dict)
    usage: Mapping[str, Total] = field(default_factory=dict)
    fault: str = ""


def held(hosts: Sequence[Host], give: Iterable[keys.Entry] = ()) -> list[Held]:
    """What each host holds, all asked at once, after it has taken the entries of `give` over."""
    text = json.dumps(keys.document(give)) if (give := list(give)) else ""
    return at_once(lambda host: _held(host, text), hosts)


def newest(found: Iterable[Held]) -> dict[str, keys.Entry]:
    """Person → the last change, by name."""
    last: dict[str, keys.Entry] = {}
    for each in found:
        for person, entry in each.entries.items():
            if person not in last or entry.age > last[person].age:
                last[person] = entry
    return dict(sorted(last.items()))


def next_stamp(last: keys.Entry | None, now: datetime.datetime) -> str:
    """The time of a change that follows `last`, also where this machine's clock is behind."""
    if last is not None:
        second = datetime.timedelta(seconds=1)
        now = max(now, datetime.datetime.fromisoformat(last.since) + second)
    return keys.stamp(now)


def _held(host: Host, text: str) -> Held:
    argv = ["sudo", "-n", *command("gateway-keys", "take" if text else "list")]
    answer, fault = ask(host.login, argv, text=text, limit_s=_LIMIT_S).json()
    if fault:
        return Held(host.name, fault=fault)
    try:
        entries = keys.parsed(answer, "its answer")
        usage: dict[str, Total] = schema.convert(
            dict[str, Total], answer.get("usage"), where="its answer", key="usage", error=_unknown
        )
    except keys.Broken as error:
        return Held(host.name, fault=f"{error}. Deploy to it")
    return Held(host.name, {entry.person: entry for entry in entries}, usage)


def _unknown(what: str, *, where: str, **_: Any) -> keys.Broken:
    return keys.Broken(f"{where}: {what}")
