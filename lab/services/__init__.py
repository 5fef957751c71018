"""The servers a Spark talks to, and what they serve, for the lab's own network.

``prepare`` builds all content in the cache; ``start_commands`` says which servers to run.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.core.cache import Report, prune
from lab.core.service import (
    DEBIAN_PACKAGES,
    GIT_PORT,
    HUB_PORT,
    PROXY_PORT,
    REGISTRY_PORT,
    WEB_PORT,
    Service,
)
from lab.git.git_content import git_repositories
from lab.hub.hub_content import hub_repositories
from lab.images.images import image_bases, image_registry
from lab.packages.precompiled_wheel import precompiled_wheels
from lab.packages.python_packages import python_index, wheels

__all__ = ["DEBIAN_PACKAGES", "Service", "prepare", "start_commands"]

_MAIN = str(Path(__file__).with_name("__main__.py"))


def prepare(cache: Path, report: Report) -> None:
    """Build whatever content is missing from the cache; quick when nothing is.

    Raises ``LabError`` with a remedy when something cannot be fetched or built.
    """
    cache.mkdir(parents=True, exist_ok=True)
    # Each builds first what it is made of. Packages and images wait for different servers.
    builds = (python_index, precompiled_wheels, hub_repositories, image_registry)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda build: build(cache, report), builds))
    keep = [
        wheels(cache, report),
        python_index(cache, report),
        git_repositories(cache, report),
        precompiled_wheels(cache, report),
        hub_repositories(cache, report),
        *image_bases(cache, report).values(),
        image_registry(cache, report),
    ]
    prune(cache, (path.name.rpartition("-")[0] for path in keep), keep, report)


def start_commands(cache: Path, state: Path, address: str) -> list[Service]:
    """The servers of one lab, in any order; content is prepared first if it is missing."""

    def ignore_message(message: str) -> None:
        pass

    def argv(server: str, port: int, *content: Path) -> tuple[str, ...]:
        places = ("--state", str(state), "--address", address, "--port", str(port))
        return (sys.executable, _MAIN, server, *places, *map(str, content))

    index = python_index(cache, ignore_message)
    git = git_repositories(cache, ignore_message)
    wheels = precompiled_wheels(cache, ignore_message)
    hub = hub_repositories(cache, ignore_message)
    images = image_registry(cache, ignore_message)
    web = argv("web", WEB_PORT, index, wheels, cache)
    registry = argv("registry", REGISTRY_PORT, images)
    return [
        Service("web", web, WEB_PORT, "/health", "web.log"),
        Service("git", argv("git", GIT_PORT, git), GIT_PORT, None, "git.log"),
        Service("hub", argv("hub", HUB_PORT, hub), HUB_PORT, "/health", "hub.log"),
        Service("registry", registry, REGISTRY_PORT, "/v2/", "registry.log"),
        Service("proxy", argv("proxy", PROXY_PORT), PROXY_PORT, "/health", "proxy.log"),
    ]
