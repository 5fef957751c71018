"""What a deploy left on a host about itself, and what is there of others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.engine import sense_record
from lockstep.onhost.facts.reading import Facts, document, owner, seal
from lockstep.onhost.gateway import keys
from lockstep.onhost.records import deploys, found, generations, ours
from lockstep.onhost.systemd import units

_DEPLOYED = ("number", "date", "digest", "lock")


def generation(_: object) -> dict[str, Any]:
    """ "number", "date", "digest" and "lock" of the newest record of what this host was brought to;
    none of them without one. "begun": "digest" and "lock" of what a deploy began to bring and has
    not ended well; absent without such a deploy."""
    newest, begun = generations.newest(layout.Paths()), generations.begun(layout.Paths())
    found = {key: newest[key] for key in _DEPLOYED} if newest else {}
    if begun:
        found["begun"] = {key: begun[key] for key in ("digest", "lock")}
    return found


def apart(asked: str) -> list[str]:
    """What of this host is not as the record of a generation says, [] for nothing. Asked: The
    record's digest."""
    every = generations.records(layout.Paths())
    wanted = next((each for each in every if each["digest"] == asked), None)
    if wanted is None:
        return [f"no record of the generation {asked}"]
    found = []
    if every[0]["digest"] != asked:
        found.append(f"the newest record is generation {every[0]['number']}, another one")
    for file in wanted["files"]:
        owned = f"{file['mode']} {file['owner']}:{file['group']}"
        try:
            entry, text = os.lstat(file["path"]), Path(file["path"]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            found.append(f"{file['path']}: {errors.why(error)}")
            continue
        if text != file["text"]:
            found.append(f"{file['path']}: another text")
        if owner(entry) != owned:
            found.append(f"{file['path']}: {owner(entry)}, not {owned}")
    engine = wanted["engine"]
    current = Path(engine["folder"]) / "current"
    if engine["id"] and current.resolve().name != engine["id"]:
        found.append(f"{current}: leads to {current.resolve().name}, not to {engine['id']}")
    return found


def deploying(asked: dict[str, Any]) -> dict[str, Any]:
    """ "other": who else deploys to this host, in words; "" where the deploy that asks may.
    "waited": whether another deploy was under way when this was asked, so that what was read beside
    it is of no use. "before": how the deploy before ended, where this host had to return from it;
    else "". Asked: That deploy (`deploys.Deploy`), which has sent for the lock.
    """
    mine, paths = deploys.Deploy(**asked), layout.Paths()
    there = deploys.holder(paths.deploy_lock)
    found = deploys.other_than(mine, paths.deploy_lock)
    return {
        "other": str(found) if found else "",
        "waited": bool(there and there.run != mine.run),
        "before": deploys.cut_off(paths),
    }


def intruders(asked: dict[str, Any]) -> dict[str, str]:
    """What is in the way of a deploy and is not Lockstep's; see `ours.intruders`."""
    return ours.intruders(asked)


def unnoted(asked: dict[str, list[str]]) -> dict[str, list[str]]:
    """What of the things that a deploy may touch nobody has noted yet, as `found` is told it."""
    return found.unnoted(layout.Paths(), asked)


def persons(asked: str) -> dict[str, Any]:
    """ "changes": `changes` of the gateway's keys.json; "fault": why they cannot be read, or "".
    Asked: the key that seals them.
    """
    path = layout.Paths().gateway_keys
    try:
        found = keys.loaded(path.read_text(encoding="utf-8"), str(path)) if path.exists() else []
    except (keys.Broken, OSError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, keys.Broken) else f"{path}: {errors.why(error)}"
        return {"changes": {}, "fault": why}
    return {"changes": changes(found, asked), "fault": ""}


def changes(entries: Iterable[keys.Entry], key: str) -> dict[str, list[Any]]:
    """Person → [when the key was changed last, whether that was a revocation, a keyed hash]."""
    return {
        each.person: [each.since, each.sha256 is None, seal(key, repr(each).encode())]
        for each in entries
    }


def deployed(_: object) -> Facts:
    """What a deploy brought the host to, and the speeds that are accepted."""
    found = generation(None)
    for key in filter(found.__contains__, _DEPLOYED):
        yield "deployed", key, found[key]
    accepted = document(str(layout.Paths().accepted))
    for name, entry in accepted.items() if isinstance(accepted, dict) else ():
        told = ("decode_tok_s", "runs", "power_w", "clock_mhz", "max_clock_mhz", "recipe", "date")
        figures = {key: entry.get(key) for key in told}
        yield "accepted speed", name, shown(figures)


def sense(_: object) -> Facts:
    """Findings of the last look at each model that is hot, and records that decide nothing."""
    paths = layout.Paths()
    looked = sense_record.last(paths)
    try:
        targets = config.load_host(paths.targets).targets
    except errors.Problem:
        return
    for name, target in targets.items():
        if not sense_record.decides(paths, target):
            yield "sense record", name, "without log-probabilities, so it decides nothing"
    state = units.show(targets[name].unit for name in looked if name in targets)
    for name, seen in looked.items():
        unit = state[targets[name].unit] if name in targets else None
        if unit and unit.state == "hot" and unit.main_pid == seen.pid:
            yield "sense", name, seen.words if seen.state == "nonsense" else "no nonsense"


def shown(value: Any) -> str:
    """A value of JSON in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value) or "untold"
