"""Lines for the results of resolving, at most 78 columns each."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.lock import moving
from lockstep.lock.lockdiff import pin_text
from lockstep.lock.packages import name_of
from lockstep.lock.pins import Pin, PythonPin

COLUMNS = 78


def resolved_lines(item: moving.Item, pin: Pin) -> list[str]:
    """Return "vllm is at fix_parsing 0123456789ab"; for packages, a line for each asked for.

    The lines say what was found, not what moved.
    """
    lines = []
    if isinstance(pin, PythonPin):
        lines = [_line(text, pin.versions[name_of(text)]) for text in pin.asked]
        if len(pin.packages) == len(pin.asked):
            return lines
    verb = "has" if isinstance(pin, PythonPin) else "is at"
    return [*lines, _line(name(item), pin_text(pin), verb)]


def failed_line(item: moving.Item) -> str:
    """Return the line for a thing that failed; the error has the reason."""
    return _line(name(item), "not resolved", "is")


def waiting(items: Sequence[moving.Item]) -> str:
    """Return the line for what is still being asked, so that silence never looks like a hang."""
    return _cut(f"still asking for {', '.join(sorted(map(name, items)))}", COLUMNS)


def name(item: moving.Item) -> str:
    """Return the shortest name by which a person recognises an item."""
    match item:
        case moving.PythonItem(name=environment):
            return f"environment {environment}"
        case moving.GitItem(repository=repository):
            return repository
        case moving.PrecompiledItem(tree=tree):
            return f"compiled parts of {tree.repository}"
        case moving.ImageItem(reference=reference):
            return reference.partition("@")[0]
        case moving.CheckpointItem(id=identity):
            return identity


def _line(label: str, right: str, verb: str = "is at") -> str:
    """Return ``left is at right``, the longer side cut where both do not fit."""
    room = COLUMNS - len(f" {verb} ")
    right = _cut(right, max(room - len(label), room // 2))
    return f"{_cut(label, room - len(right))} {verb} {right}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
