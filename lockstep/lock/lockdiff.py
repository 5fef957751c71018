"""The differences between two locks, one line per thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.core.digest import is_commit
from lockstep.core.terminal import bytes_text
from lockstep.lock.pins import GitPin, ImagePin, ModelPin, Pin, Pins, PrecompiledPin, PythonPin

# Digits of a commit or digest that are enough to recognise it.
DIGITS = 12
_KINDS = {"git": "git", "precompiled": "precompiled", "image": "images", "model": "models"}


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
    for kind, section in _KINDS.items():
        before, after = getattr(old, section), getattr(new, section)
        for name in sorted({*before, *after}):
            was, now = (shown(pins[name]) if name in pins else None for pins in (before, after))
            if was != now:
                yield Change(kind, name, was, now)


def _environment(name: str, old: PythonPin | None, new: PythonPin | None) -> Iterator[Change]:
    before = {wheel.name: wheel for wheel in old.packages} if old else {}
    after = {wheel.name: wheel for wheel in new.packages} if new else {}
    for package in sorted({*before, *after}):
        mine, theirs = before.get(package), after.get(package)
        if mine is None or theirs is None or mine.version != theirs.version:
            versions = (wheel.version if wheel else None for wheel in (mine, theirs))
            yield Change(name, package, *versions)
        elif mine.sha256 != theirs.sha256:
            files = (f"{wheel.version} {wheel.sha256[:DIGITS]}" for wheel in (mine, theirs))
            yield Change(name, package, *files)
    if old and new and (old.architecture, old.python) != (new.architecture, new.python):
        platforms = (f"{pin.architecture}, Python {pin.python}" for pin in (old, new))
        yield Change(name, "platform", *platforms)


def shown(pin: Pin) -> str:
    """As much of a pin as a person recognises it by."""
    match pin:
        case PythonPin(packages=packages):
            return _count(len(packages), "package")
        case GitPin(branch=branch, commit=commit):
            return f"{branch} {commit[:DIGITS]}"
        case PrecompiledPin(variant=variant, commit=commit, sha256=sha256):
            return f"{variant} {commit[:DIGITS]}, {sha256[:DIGITS]}".strip()
        case ImagePin(digest=digest, size=size):
            return f"{digest.partition(':')[2][:DIGITS]}, {bytes_text(size)}"
        case ModelPin(asked=asked, commit=commit, files=files):
            revision = asked[:DIGITS] if is_commit(asked) else asked
            held = f"{_count(len(files), 'file')}, {bytes_text(pin.size)}"
            return f"{revision} {commit[:DIGITS]}, {held}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
