"""The keys of persons on all Sparks of an inventory: read, written, compared."""

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
from lockstep.onhost.gateway.usage_totals import Total

_LIMIT_S = 60.0


@dataclass(frozen=True)
class HeldKeys:
    """The keys on one Spark.

    Attributes:
        host: The Spark's name.
        entries: Person → entry.
        usage: Person → their usage on that Spark.
        fault: Why the keys are not known; "" where they are.
    """

    host: str
    entries: Mapping[str, keys.Entry] = field(default_factory=dict)
    usage: Mapping[str, Total] = field(default_factory=dict)
    fault: str = ""


def held_keys(hosts: Sequence[Host], give: Iterable[keys.Entry] = ()) -> list[HeldKeys]:
    """Return the keys of each host, all asked at once, after each has taken over `give`."""
    text = json.dumps(keys.entries_document(give)) if (give := list(give)) else ""
    return at_once(lambda host: _held_keys(host, text), hosts)


def newest(key_states: Iterable[HeldKeys]) -> dict[str, keys.Entry]:
    """Return the last change of each person, sorted by name."""
    last: dict[str, keys.Entry] = {}
    for key_state in key_states:
        for person, entry in key_state.entries.items():
            if person not in last or entry.age_sort_key > last[person].age_sort_key:
                last[person] = entry
    return dict(sorted(last.items()))


def next_stamp(last: keys.Entry | None, now: datetime.datetime) -> str:
    """Return a time for a change after `last`, even where this machine's clock is behind."""
    if last is not None:
        second = datetime.timedelta(seconds=1)
        now = max(now, datetime.datetime.fromisoformat(last.since) + second)
    return keys.format_utc(now)


def _held_keys(host: Host, text: str) -> HeldKeys:
    argv = ["sudo", "-n", *command("gateway-keys", "take" if text else "list")]
    answer, fault = ask(host.login, argv, text=text, limit_s=_LIMIT_S).json()
    if fault:
        return HeldKeys(host.name, fault=fault)
    try:
        entries = keys.parse_entries(answer, "its answer")
        usage: dict[str, Total] = schema.convert(
            dict[str, Total], answer.get("usage"), where="its answer", key="usage", error=_unknown
        )
    except keys.BrokenKeys as error:
        return HeldKeys(host.name, fault=f"{error}. Deploy to it")
    return HeldKeys(host.name, {entry.person: entry for entry in entries}, usage)


def _unknown(
    description: str, *, where: str, found: str = "", allowed: str = "", **_: Any
) -> keys.BrokenKeys:
    return keys.BrokenKeys(f"{where}: {schema.fault_sentence(description, found, allowed)}")
