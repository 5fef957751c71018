"""The `docker run` command lines of Lockstep's units: always in the foreground, never restarted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.inventory.cluster import ClusterMembers
from lockstep.inventory.settings import Settings
from lockstep.onhost.docker import container_processes
from lockstep.onhost.docker.docker_api import LABEL
from lockstep.recipes.recipe_file import CONTAINER_KEYS, Recipe

DOCKER = "/usr/bin/docker"
# The kernel charges a process only for its own pages, not for its memory on the GPU. Without this
# an engine looks small and another process dies in its place.
OOM_SCORE = "800"
# The defaults of sparkrun (RECIPES.md, "Executor Config", 2026-07), less `privileged`: an engine
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
# RDMA locks the memory that it sends from and receives into.
_RDMA = ("--device", "/dev/infiniband")


def own_label(name: str) -> str:
    """Return the label that marks a container or volume of the unit ``name`` as ours."""
    return f"{LABEL}={name}"


def cache_volume(unit: str) -> str:
    """Return the volume for what an engine in a container has compiled."""
    return f"{unit}-cache"


def volume_option(name: str, target: str, unit: str) -> tuple[str, str]:
    """Return the option that mounts a volume, and makes it with our label where it is missing."""
    return ("--mount", f"type=volume,source={name},target={target},volume-label={own_label(unit)}")


def foreground_options(name: str) -> tuple[str, ...]:
    """Return the options of every container here: only systemd starts, stops and restarts it."""
    return (
        *(DOCKER, "run", "--rm", "--init", "--name", name),
        *("--pull", "never", "--restart", "no"),
        *("--label", own_label(name)),
        *("--label", "com.centurylinklabs.watchtower.enable=false"),
        # This holds root in a container to its own files; a GPU needs no capability.
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        # The journal has every line; Docker's own copy is bounded.
        *("--log-driver", "local", "--log-opt", "max-size=10m", "--log-opt", "max-file=2"),
    )


def docker_run(
    settings: Settings,
    recipe: Recipe,
    name: str,
    image: str,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    group: ClusterMembers | None = None,
) -> tuple[str, ...]:
    """Return the command line of one engine's container; `argv` is the engine's own.

    `docker inspect` shows the variables: no secrets. Container options of the recipe are honoured.
    """
    hub = settings.paths.hub_cache
    return (
        *foreground_options(name),
        # The memory minimum and the gate find the engine's processes there without Docker.
        *("--cgroup-parent", container_processes.slice_of(name)),
        *("--oom-score-adj", OOM_SCORE),
        *run_options(recipe, group),
        *("--mount", f"type=bind,source={hub},target={hub},readonly"),
        *volume_option(cache_volume(name), "/cache", name),
        *(word for pair in environment.items() for word in ("--env", "=".join(pair))),
        image,
        *argv,
    )


def run_options(recipe: Recipe, group: ClusterMembers | None = None) -> tuple[str, ...]:
    """Return options for ``docker run``: GPU, network, shared memory, limits, entry point, RDMA.

    Name, volumes, environment, labels and ``--rm`` belong to the unit. The recipe's
    `restart_policy` and `auto_remove` are not honoured: systemd restarts engines here, never
    Docker. `privileged` is not honoured either: a recipe is a stranger's file, and such a container
    is root on the host.

    Raises:
        RecipeError: an option that is not one plain word.
    """
    settings = {**_DEFAULTS, **recipe.executor_config, **(_OF_A_RANK if group else {})}
    options: list[str] = []
    for key in CONTAINER_KEYS:
        value = settings[key]
        if value is None or (value == "" and key != "entrypoint"):
            continue
        options += ["--" + key.replace("_", "-"), _option_value(recipe, key, value)]
    limits = {**recipe.lockstep.ulimits, **({"memlock": -1} if group else {})}
    for name, limit in sorted(limits.items()):
        options += ["--ulimit", f"{name}={limit}"]
    if group and group.devices:
        options += _RDMA
    return tuple(options)


def _option_value(recipe: Recipe, key: str, value: Any) -> str:
    if isinstance(value, dict | list) or any(character.isspace() for character in str(value)):
        raise RecipeError(
            f"executor_config.{key} must be one word", where=str(recipe.path), found=repr(value)
        )
    # "container:NAME" would join a container that is not ours.
    if key in ("network", "ipc") and ":" in str(value):
        raise RecipeError(
            f"executor_config.{key} must not be another container's",
            where=str(recipe.path),
            found=repr(value),
        )
    return str(value)
