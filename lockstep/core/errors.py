"""The one error type that a user sees: the expected value, the actual one, and the next step."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

#: Columns of the narrowest terminal that a message for the operator's computer must fit.
WIDTH = 80


def paragraph(text: str) -> str:
    """``text`` with each of its lines filled to `WIDTH` columns.

    What somebody may want to copy stays whole: a word that is longer than a line (a path, a
    digest), and a command between backquotes.
    """
    kept = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\xa0"), text)
    filled = (
        textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in kept.splitlines()
    )
    return "\n".join(filled).replace("\xa0", " ")


class LockstepError(Exception):
    """A failure caused by input or by the world, never by a bug in Lockstep.

    Attributes:
        what: What is wrong, as one sentence without a full stop.
        where: File, key or host that holds the fault (``"glm.yaml:12"``), or "".
        found: What was found there, with number and unit, or "".
        allowed: What would have been accepted, or "".
        remedy: The next step for the user, or "".
    """

    def __init__(
        self, what: str, *, where: str = "", found: str = "", allowed: str = "", remedy: str = ""
    ) -> None:
        self.what = what
        self.where = where
        self.found = found
        self.allowed = allowed
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        """One paragraph: ``where: what; found …; allowed: …. remedy``."""
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        if self.found:
            sentence += f"; found {self.found}"
        # What is meant comes before a list that may be long.
        hint = self.remedy if self.remedy.startswith("Did you mean") else ""
        if self.allowed and not hint:
            sentence += f"; allowed: {self.allowed}"
        sentence = sentence.rstrip(".") + "."
        if self.allowed and hint:
            return f"{sentence} {hint} Allowed: {self.allowed.rstrip('.')}."
        return f"{sentence} {self.remedy}".rstrip() if self.remedy else sentence

    @classmethod
    @contextmanager
    def instead(cls, what: str, where: object, remedy: str = "") -> Iterator[None]:
        """A block whose `OSError` becomes this error, with the system's reason in it."""
        try:
            yield
        except OSError as fault:
            found = fault.strerror or str(fault)
            raise cls(what, where=str(where), found=found, remedy=remedy) from fault


class RecipeError(LockstepError):
    """A recipe cannot be read, or says something that cannot be served."""


class CatalogueError(LockstepError):
    """A file of the catalogue other than a recipe is wrong."""


class UnitError(LockstepError):
    """A systemd unit, or a value that goes into one, is not acceptable."""


class InventoryError(LockstepError):
    """Inventory or group data is wrong; nothing was contacted."""


class Mistakes(InventoryError):
    """Several of them, each a line; `every` has them one by one."""

    def __init__(self, every: Sequence[LockstepError]) -> None:
        self.every = tuple(every)
        super().__init__(f"{len(self.every)} mistakes")

    def __str__(self) -> str:
        """A line for each, and their number."""
        return "\n".join((*map(str, self.every), f"{len(self.every)} mistakes."))


class Unread(Exception):
    """A value was asked for that is wrong itself: what depends on it cannot be judged."""


@contextmanager
def gather_faults(faults: list[LockstepError]) -> Iterator[None]:
    """A block whose error is added to ``faults``, so that the checks after it are made too."""
    try:
        yield
    except Unread:
        pass
    except Mistakes as found:
        faults += found.every
    except LockstepError as fault:
        faults.append(fault)


def joint_fault(faults: Iterable[LockstepError]) -> LockstepError:
    """The one that there is, or `Mistakes`; what several hosts have alike is said once."""
    every = list({str(fault): fault for fault in faults}.values())
    return every[0] if len(every) == 1 else Mistakes(every)


def raise_all(faults: Collection[LockstepError]) -> None:
    """Raise them as one, if there are any."""
    if faults:
        raise joint_fault(faults)


class ResolveError(LockstepError):
    """A branch, tag, range or repository could not be resolved to something exact."""
