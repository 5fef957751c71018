"""A copy of what a deploy reads of this repository."""

from __future__ import annotations

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_PARTS = ("config.py", "deploy.py", "lockstep", "tasks", "templates", "catalogue", "group_data")


def copied(folder: Path, *, compiled: bool = True) -> Path:
    """The folder, with the copy and room for inventories; `compiled` for who imports from it."""
    ignored = shutil.ignore_patterns(*(() if compiled else ("__pycache__",)))
    for part in _PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, folder / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / part)
    (folder / "inventories").mkdir()
    # Group data of its name are there.
    (folder / "inventories/spark.py").touch()
    return folder
