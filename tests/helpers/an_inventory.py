"""What an owner has: a copy of this repository, and an inventory file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import RECIPES

REPOSITORY = Path(__file__).parents[2]
_PARTS = ("config.py", "deploy.py", "lockstep", "tasks", "templates", "catalogue", "group_data")
ANNA: dict[str, Any] = {"operators": ("anna",)}
TWO = dict.fromkeys(("spark-1.local", "spark-2.local"), ANNA)

_ALL = {
    "recipe": "mistral-sglang-nx",
    "unit": "sglang-all",
    "overrides": {"tensor_parallel": 2},
    "cluster": "pair",
}
#: Two that serve one model together.
PAIR: dict[str, dict[str, Any]] = {
    name: {
        **{**ANNA, "ssh_user": "anna", "ssh_hostname": address, "fabric_address": address},
        "fabric": {"socket": "eth0"},
        "clusters": {"pair": {"hosts": ("spark-1.local", "spark-2.local")}},
        "recipe_folders": (str(RECIPES),),
        "targets": {"all": _ALL},
    }
    for name, address in (("spark-1.local", "10.0.0.1"), ("spark-2.local", "10.0.0.2"))
}


def written(folder: Path, hosts: Mapping[str, Mapping[str, Any]], name: str = "sparks") -> Path:
    """The file of a name with these hosts and their data."""
    path = folder / f"{name}.py"
    path.write_text(
        "from lockstep.deploy.checked import checked\n"
        f"{name} = checked(__file__, {list(hosts.items())!r})\n"
    )
    return path


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
