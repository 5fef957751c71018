"""The newest record of what this host was brought to. Argument: {"folder"}; {} without one."""

from __future__ import annotations

import json
import os
import re
from typing import Any


def read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as text:
            found = json.load(text)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "digest" in found else {}


def main(asked: dict[str, Any]) -> dict[str, Any]:
    folder = asked["folder"]
    names = os.listdir(folder) if os.path.isdir(folder) else []
    numbered = [name for name in names if re.fullmatch(r"\d{4,}\.json", name)]
    for name in sorted(numbered, key=lambda name: -int(name.partition(".")[0])):
        found = read(os.path.join(folder, name))
        if found:
            return {key: found.get(key) for key in ("number", "date", "digest", "lock")}
    return {}
