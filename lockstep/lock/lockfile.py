"""Reader and writer of the lock file: the exact meaning of every branch, tag, range and revision.

The lock is replaced whole or not at all. Beside it stand the lock that the last whole deploy used
(`deployed_path`), and the one that a deploy had used before that (`previous_path`). Each has a
record of what else it was deployed with (`deployed_with`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.core.yamlfile import parse_mapping, part, place, read_text
from lockstep.core.yamlwrite import dump
from lockstep.lock.pins import ImagePin, Pins
from lockstep.onhost.core import atomic_files, schema

#: Number of the format; another one is refused.
VERSION = 1
HEADER = """\
# What every branch, tag, range and revision stands for. Every host gets exactly this.
# Written by `lockstep update [NAME]`, which moves all of it or one thing, and by a deploy for what
# has no entry yet. Keep it under version control.
"""


def load(path: Path) -> Pins:
    """Return the lock at ``path``; an absent file is an empty lock.

    InventoryError for a file that is no lock, with file, line, key and what is allowed.
    """
    if not path.exists():
        return Pins()
    text = read_text(path, InventoryError)
    if text not in _read:
        _read[text] = _pins(text, str(path))
    return _read[text]


# A deploy reads its lock, and at its end that of the deploy before, which mostly is the same.
_read: dict[str, Pins] = {}


def _pins(text: str, where: str) -> Pins:
    document = parse_mapping(text, where, InventoryError)
    version = document.get("version")
    if version != VERSION:
        raise InventoryError(
            "the lock has another format",
            where=where,
            found=f"version {version}" if version is not None else "no version",
            allowed=f"version {VERSION}",
            remedy="Use the Lockstep that wrote it, or delete it and run `lockstep lock`.",
        )
    if "models" in document:
        raise InventoryError(
            "the lock is of an earlier version of Lockstep",
            where=place(where, document, "models"),
            found="key 'models'",
            allowed="'checkpoints'",
            remedy="Rename the key, which keeps its versions; or delete the file and run "
            "`lockstep lock`.",
        )
    # Locks held versions of Debian packages (`apt`) until 2026-11; a newly written lock has none.
    sections = part(document, [key for key in document if key not in ("version", "apt")])
    return schema.build(Pins, sections, where=where, error=InventoryError)


def save(path: Path, pins: Pins) -> None:
    """Write the lock whole, or leave the old file. ResolveError where it cannot be written."""
    entries = "" if pins == Pins() else dump(pins)
    remedy = "Make the folder writable and run again; no host was changed."
    with ResolveError.instead("the lock cannot be written", path, remedy):
        atomic_files.write(path.resolve(), f"{HEADER}version: {VERSION}\n{entries}")


def deployed_path(path: Path) -> Path:
    """Return the path, beside the lock, of the lock that the last whole deploy used."""
    return path.with_name(path.name.removesuffix(".yaml") + ".deployed.yaml")


def previous_path(path: Path) -> Path:
    """Return the path, beside the lock, of the lock deployed before `deployed_path`."""
    return path.with_name(path.name.removesuffix(".yaml") + ".previous.yaml")


def record_silent_images(path: Path, pins: Pins, reasons: Mapping[str, str]) -> None:
    """Record in the lock the images whose engine could not be asked, for `lockstep plan`.

    Args:
        path: The lock, which held ``pins`` when the deploy began.
        reasons: Digest → why, "" where the engine answered; images of other hosts are not named.
    """
    if _with_reasons(pins, reasons):
        pins = load(path)
        save(path, pins | Pins(images=_with_reasons(pins, reasons)))


def _with_reasons(pins: Pins, reasons: Mapping[str, str]) -> dict[str, ImagePin]:
    return {
        name: replace(pin, unanswered=reasons[pin.digest])
        for name, pin in pins.images.items()
        if reasons.get(pin.digest, pin.unanswered) != pin.unanswered
    }


def record_deployed(path: Path, pins: Pins, hosts: Mapping[str, Any] | None = None) -> None:
    """Record that every host has ``pins`` now, and the pins that they had before.

    Args:
        path: The lock.
        pins: The content of the lock.
        hosts: Host → other data of its generation; the key "generation" tells two apart.
    """
    last, target_path = deployed_path(path), previous_path(path)
    hosts = hosts or {}
    if last.exists():
        was = deployed_with(last)
        if load(last) == pins and (not was or _generations(was) == _generations(hosts)):
            _save_with(last, hosts)
            return
        save(target_path, load(last))
        _save_with(target_path, was)
    save(last, pins)
    _save_with(last, hosts)


def deployed_with(lock: Path) -> dict[str, Any]:
    """Return ``hosts`` as `record_deployed` wrote it beside this lock; {} where it is not known."""
    document = atomic_files.read_json(_with_path(lock))
    is_current = isinstance(document, dict) and document.get("lock") == _sha256(lock)
    return dict(document["hosts"]) if is_current else {}


def _save_with(lock: Path, hosts: Mapping[str, Any]) -> None:
    path = _with_path(lock)
    if not hosts:
        path.unlink(missing_ok=True)
    elif deployed_with(lock) != hosts:
        atomic_files.write_json(path, {"lock": _sha256(lock), "hosts": hosts}, mode=0o600)


def _with_path(lock: Path) -> Path:
    return lock.with_suffix(".json")


def _sha256(lock: Path) -> str:
    """Return the hash by which a lock and its record know that they belong together."""
    return hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else ""


def _generations(hosts: Mapping[str, Any]) -> dict[str, str]:
    return {name: record["generation"] for name, record in hosts.items()}
