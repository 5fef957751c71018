"""Reads and writes the lock file: the exact meaning of every branch, tag, range and revision.

It is replaced whole or not at all. Beside it stand the lock that the last whole deploy used
(`deployed_path`), and the one that a deploy had used before that (`previous_path`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.core.yamlfile import parse_mapping, part, read_text
from lockstep.core.yamlwrite import dump
from lockstep.lock.pins import ImagePin, Pins
from lockstep.onhost.core import atomic, schema

#: Number of the format; another one is refused.
VERSION = 1
HEADER = """\
# What every branch, tag, range and revision stands for. Every host gets exactly this.
# Written by `lockstep lock`, which moves all of it or one thing (--only NAME), and by a deploy for
# what has no entry yet. Keep it under version control.
"""


def load(path: Path) -> Pins:
    """The lock at ``path``; an absent file is an empty lock.

    InventoryError for a file that is no lock, with file, line, key and what is allowed.
    """
    if not path.exists():
        return Pins()
    text = read_text(path, InventoryError)
    if text not in _read:
        _read[text] = _pins(text, str(path))
    return _read[text]


# A deploy reads its lock, and at its end the one of the deploy before, which mostly is the same.
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
    # Locks held versions of Debian packages (`apt`) until 2026-11; the next one written has none.
    sections = part(document, [key for key in document if key not in ("version", "apt")])
    return schema.build(Pins, sections, where=where, error=InventoryError)


def save(path: Path, pins: Pins) -> None:
    """Write the lock whole, or leave what is there. ResolveError where it cannot be written."""
    entries = "" if pins == Pins() else dump(pins)
    remedy = "Make the folder writable and run again; no host was changed."
    with ResolveError.instead("the lock cannot be written", path, remedy):
        atomic.write(path.resolve(), f"{HEADER}version: {VERSION}\n{entries}")


def deployed_path(path: Path) -> Path:
    """Beside the lock: the one that the last whole deploy used."""
    return path.with_name(path.name.removesuffix(".yaml") + ".deployed.yaml")


def previous_path(path: Path) -> Path:
    """Beside the lock: the one that was deployed before `deployed_path`."""
    return path.with_name(path.name.removesuffix(".yaml") + ".previous.yaml")


def answered(path: Path, pins: Pins, unanswered: Mapping[str, str]) -> None:
    """Write into the lock which images' engines could not be asked, for `lockstep plan` to say.

    Args:
        path: The lock, which held ``pins`` when the deploy began.
        unanswered: Digest → why, "" where the engine answered; images of other hosts are not named.
    """
    if _told(pins, unanswered):
        pins = load(path)
        save(path, pins | Pins(images=_told(pins, unanswered)))


def _told(pins: Pins, unanswered: Mapping[str, str]) -> dict[str, ImagePin]:
    return {
        name: replace(pin, unanswered=unanswered[pin.digest])
        for name, pin in pins.images.items()
        if unanswered.get(pin.digest, pin.unanswered) != pin.unanswered
    }


def deployed(path: Path, pins: Pins) -> None:
    """Remember that every host has ``pins`` now, and what they had before."""
    last = deployed_path(path)
    if last.exists():
        if load(last) == pins:
            return
        save(previous_path(path), load(last))
    save(last, pins)
