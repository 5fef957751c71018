"""The licences of weights that an operator accepts; decided before any download."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from lockstep.core.errors import CatalogueError
from lockstep.core.yamlfile import read_mapping

Judgement = Literal["accepted", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class LicencePolicy:
    """What the inventory accepts.

    Attributes:
        osi_approved: Ids that count as open source; the catalogue's list by default.
        accept_osi: Whether every one of these is accepted.
        accept: Further ids, accepted by name (for one host, or for all).
    """

    osi_approved: frozenset[str] = field(default_factory=frozenset)
    accept_osi: bool = True
    accept: frozenset[str] = field(default_factory=frozenset)

    def judge(self, licence: str | None) -> Judgement:
        """Whether weights under this licence may be fetched.

        An expression is accepted where the policy accepts one side of each OR and all of each
        AND. None, and text that is no SPDX expression, are unknown.
        """
        if licence is None or not licence.strip():
            return "unknown"
        if licence in self.accept:
            return "accepted"
        expression = canonical(licence)
        if expression is None:
            return "unknown"
        return "accepted" if self._holds(expression) else "refused"

    def _holds(self, expression: str) -> bool:
        words = expression.replace("(", " ( ").replace(")", " ) ").split()
        value, _ = self._alternatives(words, 0)
        return value

    def _alternatives(self, words: list[str], at: int) -> tuple[bool, int]:
        value, at = self._conjunction(words, at)
        while at < len(words) and words[at] == "OR":
            other, at = self._conjunction(words, at + 1)
            value = value or other
        return value, at

    def _conjunction(self, words: list[str], at: int) -> tuple[bool, int]:
        value, at = self._one(words, at)
        while at < len(words) and words[at] == "AND":
            other, at = self._one(words, at + 1)
            value = value and other
        return value, at

    def _one(self, words: list[str], at: int) -> tuple[bool, int]:
        if words[at] == "(":
            value, at = self._alternatives(words, at + 1)
            return value, at + 1
        accepted = words[at] in self.accept or (self.accept_osi and words[at] in self.osi_approved)
        at += 1
        if at < len(words) and words[at] == "WITH":
            at += 2  # an exception only ever grants more
        return accepted, at


def canonical(licence: str) -> str | None:
    """An SPDX expression in its official spelling ("apache-2.0" → "Apache-2.0"), or None."""
    try:
        return str(canonicalize_license_expression(licence))
    except InvalidLicenseExpression:
        return None


def default_policy(catalogue: Path, accept: Collection[str] = ()) -> LicencePolicy:
    """OSI-approved licences by the catalogue's list, and those accepted by name.

    Raises:
        CatalogueError: the list cannot be read, or holds an id that SPDX does not know.
    """
    path = catalogue / "licences.yaml"
    section = read_mapping(path, CatalogueError).get("osi_approved")
    ids = section.get("ids") if isinstance(section, dict) else None
    if not isinstance(ids, list) or not ids:
        raise CatalogueError("osi_approved.ids must be a list", where=str(path))
    wrong = [str(item) for item in ids if canonical(str(item)) != str(item)]
    if wrong:
        raise CatalogueError("not an SPDX id", where=str(path), found=", ".join(wrong))
    return LicencePolicy(frozenset(str(item) for item in ids), accept=frozenset(accept))
