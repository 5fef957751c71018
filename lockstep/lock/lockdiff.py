"""The differences between two locks, one line per thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.core.digest import is_commit
from lockstep.core.terminal import bytes_text
from lockstep.lock.pins import ModelPin, Pins, PythonPin

# Digits of a commit or digest that are enough to recognise it.
DIGITS = 12


@dataclass(frozen=True)
class Change:
    """One thing that moved, came or went.

    Attributes:
        kind: "engine" or another environment, "git", "precompiled", "image", "model".
        name: Package, repository, reference or hub id.
        old: What it was, None where it was not locked.
        new: What it is, None where it is not locked any more.
    """

    kind: str
    name: str
    old: str | None
    new: str | None


def changes(old: Pins, new: Pins) -> tuple[Change, ...]:
    """Everything that differs, in the order of a lock file; dates do not count."""
    return tuple(_changes(old, new))


def _changes(old: Pins, new: Pins) -> Iterator[Change]:
    for name in sorted({*old.python, *new.python}):
        yield from _environment(name, old.python.get(name), new.python.get(name))
    kinds = (
        ("git", _commits(old), _commits(new)),
        ("precompiled", _compiled(old), _compiled(new)),
        ("image", _digests(old), _digests(new)),
        ("model", _models(old), _models(new)),
    )
    for kind, before, after in kinds:
        yield from _compared(kind, before, after)


def _compared(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Change(kind, name, old.get(name), new.get(name))


def _environment(name: str, old: PythonPin | None, new: PythonPin | None) -> Iterator[Change]:
    before = {wheel.name: wheel for wheel in old.packages} if old else {}
    after = {wheel.name: wheel for wheel in new.packages} if new else {}
    for package in sorted({*before, *after}):
        mine, theirs = before.get(package), after.get(package)
        if mine is None or theirs is None or mine.version != theirs.version:
            versions = (wheel.version if wheel else None for wheel in (mine, theirs))
            yield Change(name, package, *versions)
        elif mine.sha256 != theirs.sha256:
            shown = (f"{wheel.version} {wheel.sha256[:DIGITS]}" for wheel in (mine, theirs))
            yield Change(name, package, *shown)
    if old and new and (old.architecture, old.python) != (new.architecture, new.python):
        shown = (f"{pin.architecture}, Python {pin.python}" for pin in (old, new))
        yield Change(name, "platform", *shown)


def _commits(pins: Pins) -> dict[str, str]:
    return {url: f"{pin.branch} {pin.commit[:DIGITS]}" for url, pin in pins.git.items()}


def _compiled(pins: Pins) -> dict[str, str]:
    return {
        url: f"{pin.variant} {pin.commit[:DIGITS]}, {pin.sha256[:DIGITS]}".strip()
        for url, pin in pins.precompiled.items()
    }


def _digests(pins: Pins) -> dict[str, str]:
    return {
        name: f"{pin.digest.partition(':')[2][:DIGITS]}, {bytes_text(pin.size)}"
        for name, pin in pins.images.items()
    }


def _models(pins: Pins) -> dict[str, str]:
    return {
        name: f"{_asked(pin)} {pin.commit[:DIGITS]}, {files_text(pin)}"
        for name, pin in pins.models.items()
    }


def _asked(pin: ModelPin) -> str:
    """The revision as it was asked for; of a commit as much as shows it."""
    return pin.asked[:DIGITS] if is_commit(pin.asked) else pin.asked


def files_text(pin: ModelPin) -> str:
    """ "3 files, 1.2 GiB"."""
    count = f"{len(pin.files)} file{'' if len(pin.files) == 1 else 's'}"
    return f"{count}, {bytes_text(pin.size)}"
