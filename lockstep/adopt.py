"""What an inventory takes over on purpose although Lockstep did not make it: the key `adopt`."""

from __future__ import annotations

import re

from lockstep.errors import InventoryError
from lockstep.place_check import PATH

_FORM = re.compile(
    rf"{PATH}"
    r"|(?:unit|container|volume|account) [A-Za-z0-9_][A-Za-z0-9_.@-]*"
)


def check_adopt(entries: tuple[str, ...], file: str) -> None:
    """Refuse an entry of `adopt` that can name nothing."""
    for index, entry in enumerate(entries):
        if not _FORM.fullmatch(entry):
            raise InventoryError(
                f"adopt[{index}] names nothing that can be taken over",
                where=file,
                found=repr(entry)[:60],
                allowed='a full path, or "unit NAME", "container NAME", "volume NAME" or '
                '"account NAME"',
                remedy="Copy it from the finding that names it.",
            )
