"""Preflight: Docker, and how it gives the GPU to a container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.findings import Finding
from lockstep.inventory import HostPlan


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """What is wrong with Docker."""
    yield from _docker(plan, facts["docker"])
    yield from _cdi(plan, facts)


def _docker(plan: HostPlan, docker: dict[str, Any]) -> Iterator[Finding]:
    host = plan.name
    if "fault" in docker:
        yield Finding(
            "docker",
            "error",
            host,
            f"Docker does not answer: {docker['fault']}",
            "Run `systemctl status docker` there.",
        )
    elif "nvidia" not in docker["runtimes"] and not docker["cdi"]:
        yield Finding(
            "docker-gpu",
            "error",
            host,
            "Docker has neither the nvidia runtime nor a CDI device",
            "Run `nvidia-ctk runtime configure --runtime=docker` and restart Docker.",
        )


def _cdi(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """CDI files that name libraries of another driver than the one that runs."""
    driver, docker = facts["gpu"].get("driver_version"), facts["docker"]
    for path, made_for in docker.get("cdi", {}).items():
        if driver and made_for and made_for != driver:
            yield Finding(
                "cdi-stale",
                # The runtime finds the libraries by itself.
                "warning" if "nvidia" in docker["runtimes"] else "error",
                plan.name,
                f"{path} was made for driver {made_for}, and {driver} runs",
                f"Run `sudo nvidia-ctk cdi generate --output={path}` there.",
            )
