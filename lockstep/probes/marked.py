"""Files that an earlier deploy wrote; answers their paths.

Argument: {"mark", "folders": [...], "named": [...]}; `named` are patterns of files whose name alone
says that they are ours; "**" is any depth of folders.
"""

from __future__ import annotations

import glob
import os
from typing import Any

# A unit or script of ours says so in its first lines.
HEAD = 400


def marked(path: str, mark: str) -> bool:
    try:
        with open(path, "rb") as text:
            return mark.encode() in text.read(HEAD)
    except OSError:
        return False


def main(asked: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for folder in asked["folders"]:
        for root, _, files in os.walk(folder):
            paths = (os.path.join(root, name) for name in files)
            found += [
                path for path in paths if not os.path.islink(path) and marked(path, asked["mark"])
            ]
    for pattern in asked["named"]:
        found += glob.glob(pattern, recursive=True)
    return sorted(found)
