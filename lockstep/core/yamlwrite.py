"""YAML written for people: dataclasses in their own order, files replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml


def dump(value: Any) -> str:
    """A dataclass or mapping as YAML; what is flat stands on one line, so one line is one entry.

    Fields that are None, "", False or an empty mapping are left out. Mappings are sorted, fields
    keep their order.
    """
    text: str = yaml.dump(
        _plain(value),
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return text


def replace_file(path: Path, text: str) -> None:
    """Write ``text``; a reader sees the old file or the new one, never a part.

    Raises:
        OSError: as the file system gives it; the old file is untouched.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            # A temporary file is private; this one is read and committed like any other.
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors: an entry must be deletable without breaking another."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        named = ((item.name, getattr(value, item.name)) for item in fields(value))
        # `is`, because a size of 0 bytes equals False and must stay.
        left = {name: item for name, item in named if item is not None and item is not False}
        return {name: _plain(item) for name, item in left.items() if item not in ("", {})}
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
