"""The `docker run` command lines of Lockstep's units: always in the foreground, never restarted."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.inventory.cluster import Group
from lockstep.inventory.settings import Settings
from lockstep.recipes.recipe_file import Recipe
from lockstep.units.container import run_options

DOCKER = "/usr/bin/docker"
#: The same as `LABEL` of `onhost/docker/docker_api.py`.
LABEL = "lockstep.unit"
# The kernel charges a process for its own pages only, not for what it holds on the GPU; without
# this an engine looks small and something else dies in its place.
OOM_SCORE = "800"


def label(name: str) -> str:
    """What tells a container or volume of the unit ``name`` from somebody else's."""
    return f"{LABEL}={name}"


def cache_volume(unit: str) -> str:
    """The volume that keeps what an engine in a container has compiled."""
    return f"{unit}-cache"


def volume(name: str, target: str, unit: str) -> tuple[str, str]:
    """The option that mounts a volume, and makes it with our label where there is none."""
    return ("--mount", f"type=volume,source={name},target={target},volume-label={label(unit)}")


def foreground(name: str) -> tuple[str, ...]:
    """Options that every container here has: systemd alone starts, stops and restarts it."""
    return (
        *(DOCKER, "run", "--rm", "--init", "--name", name),
        *("--pull", "never", "--restart", "no"),
        *("--label", label(name)),
        *("--label", "com.centurylinklabs.watchtower.enable=false"),
        # Root in a container is held by this to its own files; a GPU needs no capability.
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
    group: Group | None = None,
) -> tuple[str, ...]:
    """The command line of one engine's container.

    Args:
        settings: The host's data.
        recipe: What it serves; its container options are honoured.
        name: Name of the container.
        image: REPOSITORY@sha256:… as Docker has it.
        argv: The engine's own command line.
        environment: The engine's variables; no secrets, `docker inspect` shows them.
        group: This host's part of the cluster that serves it, or None: this host alone.
    """
    hub = settings.paths.hub_cache
    return (
        *foreground(name),
        *("--oom-score-adj", OOM_SCORE),
        *run_options(recipe, group),
        *("--mount", f"type=bind,source={hub},target={hub},readonly"),
        *volume(cache_volume(name), "/cache", name),
        *(word for pair in environment.items() for word in ("--env", "=".join(pair))),
        image,
        *argv,
    )
