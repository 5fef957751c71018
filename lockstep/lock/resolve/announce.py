"""One line per result while resolving, at most 78 columns."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.lock import moving
from lockstep.lock.lockdiff import shown
from lockstep.lock.packages import name_of
from lockstep.lock.pins import Pin, PythonPin

COLUMNS = 78


def resolved(item: moving.Item, pin: Pin) -> list[str]:
    """ "vllm is at fix_parsing 0123456789ab"; of packages, a line for each asked for.

    It is what was found, not what moved.
    """
    lines = []
    if isinstance(pin, PythonPin):
        lines = [_line(text, pin.versions[name_of(text)]) for text in pin.asked]
        if len(pin.packages) == len(pin.asked):
            return lines
    verb = "has" if isinstance(pin, PythonPin) else "is at"
    return [*lines, _line(name(item), shown(pin), verb)]


def failed(item: moving.Item) -> str:
    """That one thing failed; why follows in the error."""
    return _line(name(item), "not resolved", "is")


def waiting(items: Sequence[moving.Item]) -> str:
    """What is still being asked, so that silence never looks like a hang."""
    return _cut(f"still asking for {', '.join(sorted(map(name, items)))}", COLUMNS)


def name(item: moving.Item) -> str:
    """The shortest name by which a person recognises it."""
    match item:
        case moving.PythonWanted(name=environment):
            return f"environment {environment}"
        case moving.GitWanted(repository=repository):
            return repository
        case moving.PrecompiledWanted(tree=tree):
            return f"compiled parts of {tree.repository}"
        case moving.ImageWanted(reference=reference):
            return reference.partition("@")[0]
        case moving.ModelWanted(id=identity):
            return identity


def _line(left: str, right: str, verb: str = "is at") -> str:
    """``left is at right``, the longer side cut where both do not fit."""
    room = COLUMNS - len(f" {verb} ")
    right = _cut(right, max(room - len(left), room // 2))
    return f"{_cut(left, room - len(right))} {verb} {right}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
