"""The differences between two locks, one line per thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.core.digest import is_commit
from lockstep.core.terminal import bytes_text
from lockstep.lock.pins import CheckpointPin, GitPin, ImagePin, Pin, Pins, PrecompiledPin, PythonPin

# Digits of a commit or digest that are enough to recognise it.
DIGITS = 12
_KINDS = {
    "git": "git",
    "precompiled": "precompiled",
    "image": "images",
    "checkpoint": "checkpoints",
}


@dataclass(frozen=True)
class LockChange:
    """A thing that moved, came or went.

    Attributes:
        kind: "engine" or another environment, "git", "precompiled", "image", "checkpoint".
        name: Package, repository, reference or hub id.
        old: Its former version, None where it was not locked.
        new: Its present version, None where it is no longer locked.
    """

    kind: str
    name: str
    old: str | None
    new: str | None


def changes(old: Pins, new: Pins) -> tuple[LockChange, ...]:
    """Return all differences, in the order of a lock file; dates do not count."""
    return tuple(_changes(old, new))


def _changes(old: Pins, new: Pins) -> Iterator[LockChange]:
    for name in sorted({*old.python, *new.python}):
        yield from _environment(name, old.python.get(name), new.python.get(name))
    for kind, section in _KINDS.items():
        old_section, new_section = getattr(old, section), getattr(new, section)
        for name in sorted({*old_section, *new_section}):
            was, now = (
                pin_text(pins[name]) if name in pins else None
                for pins in (old_section, new_section)
            )
            if was != now:
                yield LockChange(kind, name, was, now)


def _environment(name: str, old: PythonPin | None, new: PythonPin | None) -> Iterator[LockChange]:
    old_wheels = {wheel.name: wheel for wheel in old.packages} if old else {}
    new_wheels = {wheel.name: wheel for wheel in new.packages} if new else {}
    for package in sorted({*old_wheels, *new_wheels}):
        old_wheel, new_wheel = old_wheels.get(package), new_wheels.get(package)
        if old_wheel is None or new_wheel is None or old_wheel.version != new_wheel.version:
            versions = (wheel.version if wheel else None for wheel in (old_wheel, new_wheel))
            yield LockChange(name, package, *versions)
        elif old_wheel.sha256 != new_wheel.sha256:
            files = (f"{wheel.version} {wheel.sha256[:DIGITS]}" for wheel in (old_wheel, new_wheel))
            yield LockChange(name, package, *files)
    if old and new and (old.architecture, old.python) != (new.architecture, new.python):
        platforms = (f"{pin.architecture}, Python {pin.python}" for pin in (old, new))
        yield LockChange(name, "platform", *platforms)


def pin_text(pin: Pin) -> str:
    """Return the part of a pin by which a person recognises it."""
    match pin:
        case PythonPin(packages=packages):
            return _count(len(packages), "package")
        case GitPin(branch=branch, commit=commit):
            return f"{branch} {commit[:DIGITS]}"
        case PrecompiledPin(variant=variant, commit=commit, sha256=sha256):
            return f"{variant} {commit[:DIGITS]}, {sha256[:DIGITS]}".strip()
        case ImagePin(digest=digest, size=size):
            return f"{digest.partition(':')[2][:DIGITS]}, {bytes_text(size)}"
        case CheckpointPin(asked=asked_revision, commit=commit, files=files):
            revision = asked_revision[:DIGITS] if is_commit(asked_revision) else asked_revision
            files_text = f"{_count(len(files), 'file')}, {bytes_text(pin.size)}"
            return f"{revision} {commit[:DIGITS]}, {files_text}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
