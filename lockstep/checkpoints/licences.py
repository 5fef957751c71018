"""The licences of weights that an operator accepts; decided before any download."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from lockstep.core.errors import CatalogueError
from lockstep.core.yamlfile import read_mapping

Judgement = Literal["accepted", "refused", "unknown"]


def judge(licence: str | None, accepted_licences: Collection[str]) -> Judgement:
    """Tell whether weights under this licence may be fetched.

    An expression of several ids is accepted by name, as a whole. None and text that is no SPDX
    expression are unknown.
    """
    if licence in accepted_licences:
        return "accepted"
    expression = canonical(licence or "")
    if expression is None:
        return "unknown"
    return "accepted" if expression in accepted_licences else "refused"


def canonical(licence: str) -> str | None:
    """Return an SPDX expression in its official spelling ("apache-2.0" → "Apache-2.0"), or None."""
    try:
        return str(canonicalize_license_expression(licence))
    except InvalidLicenseExpression:
        return None


def osi_approved(catalogue: Path) -> frozenset[str]:
    """Return the ids of the OSI-approved licences, by the catalogue's list.

    CatalogueError where it cannot be read, or holds an id that SPDX does not know.
    """
    path = catalogue / "licences.yaml"
    section = read_mapping(path, CatalogueError).get("osi_approved")
    ids = section.get("ids") if isinstance(section, dict) else None
    if not isinstance(ids, list) or not ids:
        raise CatalogueError("osi_approved.ids must be a list", where=str(path))
    wrong = [str(item) for item in ids if canonical(str(item)) != str(item)]
    if wrong:
        raise CatalogueError("not an SPDX id", where=str(path), found=", ".join(wrong))
    return frozenset(str(item) for item in ids)
