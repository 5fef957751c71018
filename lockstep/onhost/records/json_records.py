"""Records of state: JSON files that our programs here write for each other, and for later.

A record that is lost costs less than a program that does not run. So one that is damaged, or that
another version wrote otherwise, counts as missing; keys that a newer version added are ignored.
Records whose loss people must decide are read by `load_or_refuse`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from lockstep.onhost.core import atomic_files, errors, schema

T = TypeVar("T")


def load(kind: type[T], path: Path) -> T | None:
    """Return a record, a dataclass or a mapping or tuple of such; None without a usable one."""
    try:
        return _parse_record(kind, path.read_text(encoding="utf-8"), strict=False)
    except (OSError, ValueError):
        return None


def load_or_refuse(kind: type[T], path: Path, remedy: str) -> T | None:
    """Return a record; None if there is none; raise Problem with the remedy if it is unusable."""
    try:
        return record_of_text(kind, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {errors.why(error)}. Remedy: {remedy}") from error


def record_of_text(kind: type[T], text: str) -> T:
    """Return a record from its text, without keys of other versions; raise ValueError."""
    return _parse_record(kind, text, strict=True)


def save(path: Path, record: Any, *, mode: int = 0o644) -> None:
    """Replace a record, a dataclass, in one step; raise OSError on failure."""
    atomic_files.write_json(path, asdict(record), mode=mode)


def _parse_record(kind: type[T], text: str, *, strict: bool) -> T:
    record: T = schema.convert(
        kind, json.loads(text), where="", key="", error=_other_version_error, strict=strict
    )
    return record


def _other_version_error(*_: object, **__: object) -> ValueError:
    return ValueError("a record of another version of Lockstep, which is not carried over")
