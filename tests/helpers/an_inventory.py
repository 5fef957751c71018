"""An owner's files: a copy of this repository, and an inventory file."""

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
#: Two Sparks that serve one model together.
PAIR: dict[str, dict[str, Any]] = {
    name: {
        **{**ANNA, "ssh_user": "anna", "ssh_hostname": address, "fabric_address": address},
        "fabric": {"socket": "eth0"},
        "clusters": {"pair": {"hosts": ("spark-1.local", "spark-2.local")}},
        "recipe_folders": (str(RECIPES),),
        "models": {"all": _ALL},
    }
    for name, address in (("spark-1.local", "10.0.0.1"), ("spark-2.local", "10.0.0.2"))
}


def write_inventory(
    folder: Path, hosts: Mapping[str, Mapping[str, Any]], name: str = "sparks"
) -> Path:
    """Write the inventory file of a name with these hosts and their data."""
    path = folder / f"{name}.py"
    path.write_text(
        "from lockstep.deploy.checked import checked\n"
        f"{name} = checked(__file__, {list(hosts.items())!r})\n"
    )
    return path


def copy_repository(folder: Path, *, has_bytecode: bool = True) -> Path:
    """Copy the repository, with room for inventories, and with bytecode if the copy is imported."""
    ignored_names = shutil.ignore_patterns(*(() if has_bytecode else ("__pycache__",)))
    for part in _PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, folder / part, symlinks=True, ignore=ignored_names)
        else:
            shutil.copy(source, folder / part)
    (folder / "inventories").mkdir()
    # An inventory file of this name, for the group data of the same name.
    (folder / "inventories/spark.py").touch()
    return folder
