"""Records that a deploy left on a host about itself, and the things of others there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.facts.reader_helpers import Facts, document, mode_and_owner, seal
from lockstep.onhost.gateway import keys
from lockstep.onhost.records import (
    deploy_lock,
    generations,
    original_state,
    ownership,
    rollback_journal,
    watch_findings,
)
from lockstep.onhost.systemd import units

_DEPLOYED = ("number", "date", "digest", "lock")


def generation(_: object) -> dict[str, Any]:
    """Return "number", "date", "digest" and "lock" of the host's newest generation, if any.

    "begun": "digest" and "lock" of a deploy that began and has not ended well; absent without one.
    """
    newest, begun_generation = (
        generations.newest_record(layout.Paths()),
        generations.begun_record(layout.Paths()),
    )
    document = {key: newest[key] for key in _DEPLOYED} if newest else {}
    if begun_generation:
        document["begun"] = {key: begun_generation[key] for key in ("digest", "lock")}
    return document


def differences_from_generation(wanted_digest: str) -> list[str]:
    """Return differences of this host from the generation with that digest, [] for none."""
    every = generations.readable_records(layout.Paths())
    wanted_record = next((record for record in every if record["digest"] == wanted_digest), None)
    if wanted_record is None:
        return [f"no record of the generation {wanted_digest}"]
    differences = []
    if every[0]["digest"] != wanted_digest:
        differences.append(f"the newest record is generation {every[0]['number']}, another one")
    for file in wanted_record["files"]:
        owner_text = f"{file['mode']} {file['owner']}:{file['group']}"
        try:
            entry, text = os.lstat(file["path"]), Path(file["path"]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            differences.append(f"{file['path']}: {errors.why(error)}")
            continue
        if text != file["text"]:
            differences.append(f"{file['path']}: another text")
        if mode_and_owner(entry) != owner_text:
            differences.append(f"{file['path']}: {mode_and_owner(entry)}, not {owner_text}")
    engine = wanted_record["engine"]
    current = Path(engine["folder"]) / "current"
    if engine["id"] and current.resolve().name != engine["id"]:
        differences.append(f"{current}: leads to {current.resolve().name}, not to {engine['id']}")
    return differences


def effects_of_return(_: object) -> dict[str, Any]:
    """Return `rollback_journal.effects_of_return`, and "from": the newest generation's digest.

    "from" is "" for a deploy that began and has not ended well, or without a record.
    """
    paths = layout.Paths()
    newest = generations.newest_record(paths)
    is_whole = newest and rollback_journal.unfinished_journal(paths) is None
    origin = newest["digest"] if newest and is_whole else ""
    return {"from": origin, **rollback_journal.effects_of_return(paths)}


def other_and_cut_off_deploy(question: dict[str, Any]) -> dict[str, Any]:
    """Return the state of deploys on this host.

    Args:
        question: The deploy that asks (`deploys.Deploy`), which has sent for the lock.

    Returns:
        "other": the other deploy to this host, in words; "" if the asking deploy may go on.
        "waited": whether another deploy was under way at this question, which makes facts read
        beside it useless. "before": the end of the deploy before, if this host had to return from
        it; else "".
    """
    this_deploy, paths = deploy_lock.Deploy(**question), layout.Paths()
    holder = deploy_lock.lock_holder(paths.deploy_lock)
    other_deploy = deploy_lock.other_lock_holder(this_deploy, paths.deploy_lock)
    return {
        "other": str(other_deploy) if other_deploy else "",
        "waited": bool(holder and holder.run != this_deploy.run),
        "before": deploy_lock.cut_off_deploy_outcome(paths),
    }


def foreign_obstacles(question: dict[str, Any]) -> dict[str, str]:
    """Return foreign things in the way of a deploy; see `ownership.foreign_things`."""
    return ownership.foreign_things(question)


def items_missing_in_baseline(question: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the things that a deploy may touch and `baseline` has not recorded yet."""
    return original_state.unrecorded_items(layout.Paths(), question)


def sealed_key_changes_and_fault(seal_key: str) -> dict[str, Any]:
    """Return "changes" and "fault" of keys.json.

    "changes" is `last_key_change_by_person`; "fault" is why the file is unreadable, or "".

    Args:
        seal_key: The key that seals them.
    """
    path = layout.Paths().gateway_keys
    try:
        entries = (
            keys.entries_of_text(path.read_text(encoding="utf-8"), str(path))
            if path.exists()
            else []
        )
    except (keys.BrokenKeys, OSError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, keys.BrokenKeys) else f"{path}: {errors.why(error)}"
        return {"changes": {}, "fault": why}
    return {"changes": last_key_change_by_person(entries, seal_key), "fault": ""}


def last_key_change_by_person(entries: Iterable[keys.Entry], key: str) -> dict[str, list[Any]]:
    """Return [time of the key's last change, whether it was a revocation, keyed hash] by person."""
    return {
        entry.person: [entry.since, entry.sha256 is None, seal(key, repr(entry).encode())]
        for entry in entries
    }


def generation_and_accepted_speeds(_: object) -> Facts:
    """Yield the state to which a deploy brought the host, and the accepted speeds."""
    record = generation(None)
    for key in filter(record.__contains__, _DEPLOYED):
        yield "deployed", key, record[key]
    accepted_speeds = document(str(layout.Paths().accepted_speeds))
    for name, entry in accepted_speeds.items() if isinstance(accepted_speeds, dict) else ():
        shown_names = (
            "decode_tok_s",
            "runs",
            "power_w",
            "clock_mhz",
            "max_clock_mhz",
            "recipe",
            "date",
        )
        figures = {key: entry.get(key) for key in shown_names}
        yield "accepted speed", name, value_text(figures)


def sense_findings(_: object) -> Facts:
    """Yield findings of the last look at each hot model."""
    paths = layout.Paths()
    last_looks = watch_findings.load(paths).senses
    try:
        models = config.load_host(paths.models).models
    except errors.Problem:
        return
    state = units.units_by_name(models[name].unit for name in last_looks if name in models)
    for name, host_view in last_looks.items():
        unit = state[models[name].unit] if name in models else None
        if unit and unit.state == "hot" and unit.main_pid == host_view.pid:
            yield "sense", name, host_view.words if host_view.state == "nonsense" else "no nonsense"


def value_text(value: Any) -> str:
    """Return a JSON value in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(value_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value) or "untold"
