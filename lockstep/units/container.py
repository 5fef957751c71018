"""How an engine's container is started: the `docker run` options that a recipe implies."""

from __future__ import annotations

from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.inventory.cluster import Group
from lockstep.recipes.recipe_file import Recipe

# sparkrun's own defaults (RECIPES.md, "Executor Config", 2026-07), less `privileged`: an engine
# needs the GPU, the host's network and shared memory, and a recipe may not take the whole host.
_DEFAULTS: dict[str, Any] = {
    "gpus": "all",
    "network": "host",
    "ipc": "host",
    "shm_size": "10.24gb",
    "entrypoint": None,
    "user": None,
}
# Ranks meet on the host's own addresses, and NCCL shares memory among processes.
_OF_A_RANK = {"network": "host", "ipc": "host"}
# RDMA locks what it sends from and receives into.
_RDMA = ("--device", "/dev/infiniband")


def run_options(recipe: Recipe, group: Group | None = None) -> tuple[str, ...]:
    """Options for ``docker run``: GPU, network, shared memory, limits, entry point.

    Name, volumes, environment, labels and ``--rm`` belong to the unit. `restart_policy` and
    `auto_remove` of the recipe are not honoured: systemd restarts engines here, never Docker. Nor
    is `privileged`: a recipe is a stranger's file, and such a container is root on the host.

    Args:
        recipe: What it serves.
        group: The cluster that it is a rank of; RDMA where this host has it.

    Raises:
        RecipeError: an option that is not one plain word.
    """
    settings = {**_DEFAULTS, **recipe.executor_config, **(_OF_A_RANK if group else {})}
    options: list[str] = []
    for key in ("gpus", "network", "ipc", "shm_size", "user", "entrypoint"):
        value = settings[key]
        if value is None or (value == "" and key != "entrypoint"):
            continue
        options += ["--" + key.replace("_", "-"), _word(recipe, key, value)]
    limits = {**recipe.lockstep.ulimits, **({"memlock": -1} if group else {})}
    for name, limit in sorted(limits.items()):
        options += ["--ulimit", f"{name}={limit}"]
    if group and group.devices:
        options += _RDMA
    return tuple(options)


def _word(recipe: Recipe, key: str, value: Any) -> str:
    if isinstance(value, dict | list) or any(character.isspace() for character in str(value)):
        raise RecipeError(
            f"executor_config.{key} must be one word", where=str(recipe.path), found=repr(value)
        )
    # "container:NAME" is inside somebody else's container.
    if key in ("network", "ipc") and ":" in str(value):
        raise RecipeError(
            f"executor_config.{key} must not be another container's",
            where=str(recipe.path),
            found=repr(value),
        )
    return str(value)
