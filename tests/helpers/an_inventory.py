"""An inventory file, as an owner writes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import RECIPES

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
