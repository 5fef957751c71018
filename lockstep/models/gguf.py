"""GGUF: which files of a repository are one model in one quantisation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Before the name of a quantisation, where a list of files would name one.
MARK = ":"
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$|\.gguf$", re.IGNORECASE)


def files_of(names: Iterable[str], quant: str) -> tuple[str, ...]:
    """The files of one quantisation, first part first; () where there is none.

    ``quant`` is as recipes have it after the repository's name ("UD-IQ2_M").
    """
    sets: dict[str, list[str]] = {}
    for name in sorted(names):
        whole = _PART.sub("", name)
        of_model = whole != name and not whole.rpartition("/")[2].startswith("mmproj")
        if of_model and re.search(rf"(?:^|[-./]){re.escape(quant)}$", whole, re.IGNORECASE):
            sets.setdefault(whole, []).append(name)
    # `Q4_K_M` also ends `UD-Q4_K_M`, which is another one.
    return tuple(sets[min(sets, key=len)]) if sets else ()


def chosen(names: Sequence[str], asked: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each thing that was asked for, a file or ":QUANT" → the files of ``names`` that it means."""
    return {
        item: files_of(names, item[len(MARK) :])
        if item.startswith(MARK)
        else tuple(name for name in names if name == item)
        for item in asked
    }
