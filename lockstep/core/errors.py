"""The one error type that a user sees: the expected value, the actual one, and the next step."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

#: Columns of the narrowest terminal on the operator's computer. Messages must fit it.
WIDTH = 80


def paragraph(text: str) -> str:
    """Return ``text`` with each of its lines filled to `WIDTH` columns.

    Copyable parts stay whole: a word longer than a line (a path, a digest), and a command between
    backquotes.
    """
    unbreakable_text = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\xa0"), text)
    wrapped_lines = (
        textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in unbreakable_text.splitlines()
    )
    return "\n".join(wrapped_lines).replace("\xa0", " ")


class LockstepError(Exception):
    """A failure caused by input or by the world, never by a bug in Lockstep.

    Attributes:
        summary: The fault, as one sentence without a full stop.
        where: File, key or host that holds the fault (``"glm.yaml:12"``), or "".
        found: The value found there, with number and unit, or "".
        allowed: The accepted values, or "".
        remedy: The next step for the user, or "".
    """

    def __init__(
        self, summary: str, *, where: str = "", found: str = "", allowed: str = "", remedy: str = ""
    ) -> None:
        self.summary = summary
        self.where = where
        self.found = found
        self.allowed = allowed
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        """Return one paragraph: ``where: summary; found …; allowed: …. remedy``."""
        sentence = f"{self.where}: {self.summary}" if self.where else self.summary
        if self.found:
            sentence += f"; found {self.found}"
        # The likely meaning comes before a list that may be long.
        hint = self.remedy if self.remedy.startswith("Did you mean") else ""
        if self.allowed and not hint:
            sentence += f"; allowed: {self.allowed}"
        sentence = sentence.rstrip(".") + "."
        if self.allowed and hint:
            return f"{sentence} {hint} Allowed: {self.allowed.rstrip('.')}."
        return f"{sentence} {self.remedy}".rstrip() if self.remedy else sentence

    @classmethod
    @contextmanager
    def instead(cls, summary: str, where: object, remedy: str = "") -> Iterator[None]:
        """Run a block whose `OSError` becomes this error, with the system's reason in it."""
        try:
            yield
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise cls(summary, where=str(where), found=reason, remedy=remedy) from fault


class RecipeError(LockstepError):
    """An error in a recipe: unreadable, or with a value that cannot be served."""


class CatalogueError(LockstepError):
    """An error in a file of the catalogue other than a recipe."""


class UnitError(LockstepError):
    """An error in a systemd unit, or in a value that goes into one."""


class InventoryError(LockstepError):
    """An error in inventory or group data; no host was contacted."""


class Mistakes(InventoryError):
    """Several inventory errors, each on a line; `every` has them one by one."""

    def __init__(self, every: Sequence[LockstepError]) -> None:
        self.every = tuple(every)
        super().__init__(f"{len(self.every)} mistakes")

    def __str__(self) -> str:
        """Return a line for each error, and their number."""
        return "\n".join((*map(str, self.every), f"{len(self.every)} mistakes."))


class Unread(Exception):
    """A value is itself wrong, so dependent values cannot be judged."""


@contextmanager
def gather_faults(faults: list[LockstepError]) -> Iterator[None]:
    """Run a block and add its error to ``faults``, so that the checks after the block run too."""
    try:
        yield
    except Unread:
        pass
    except Mistakes as error:
        faults += error.every
    except LockstepError as fault:
        faults.append(fault)


def joint_fault(faults: Iterable[LockstepError]) -> LockstepError:
    """Return the only error, or `Mistakes`; an error that several hosts share appears once."""
    every = list({str(fault): fault for fault in faults}.values())
    return every[0] if len(every) == 1 else Mistakes(every)


def raise_all(faults: Collection[LockstepError]) -> None:
    """Raise the errors as one, if there are any."""
    if faults:
        raise joint_fault(faults)


class ResolveError(LockstepError):
    """An error: a branch, tag, range or repository has no exact meaning."""
