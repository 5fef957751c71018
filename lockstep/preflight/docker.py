"""Preflight: Docker, and its way to give a container the GPU: NVIDIA's hook, or a CDI file.

The source of moby decides it (daemon/nvidia_linux.go of 28.5.2, daemon/devices_nvidia_linux.go of
29.7.2, read 2026-11-22): neither asks a runtime that is registered as `nvidia`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Literal

from lockstep.core.findings import Finding, Severity
from lockstep.inventory.host import HostPlan
from lockstep.onhost.facts.docker import CDI_HOOK, DEVICE, HOOK
from lockstep.units.docker_run import DOCKER

# moby/moby#50228. #52704 would turn the order round again and was open in August 2026.
_CDI_FIRST = 29


#: Modes of the toolkit in which its hook works. In others it refuses to be called by Docker itself
#: (nvidia-container-toolkit, cmd/nvidia-container-runtime-hook/main.go, read 2026-11;
#: eugr/spark-vllm-docker#129).
HOOK_MODES = ("", "auto", "legacy")


def _takes_cdi_first(version: str | None) -> bool:
    """Tell whether this version of Docker looks for a CDI device before it takes the hook."""
    match = re.match(r"\d+", version or "")
    return match is not None and int(match[0]) >= _CDI_FIRST


def way(
    version: str | None, hooks: Collection[str], devices: Collection[str], mode: str = ""
) -> Literal["cdi", "hook"] | None:
    """Return the way in which a container gets the GPU; None where `--gpus all` is an error.

    Args:
        hooks: NVIDIA's programs on the PATH of Docker's daemon.
        devices: CDI devices that Docker knows.
        mode: Mode of NVIDIA's toolkit, "" where it is not known.
    """
    if _takes_cdi_first(version) and CDI_HOOK in hooks and DEVICE in devices:
        return "cdi"
    return "hook" if HOOK in hooks and mode in HOOK_MODES else None


def findings(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield the faults of Docker."""
    yield from _docker(plan, facts["docker"], facts["docker_ways"])
    yield from _cdi(plan, facts)


def _docker(plan: HostPlan, docker: dict[str, Any], ways: dict[str, Any]) -> Iterator[Finding]:
    own = ", ".join(f"the account {name}" for name in ways["rootless"])
    snap = ways["snap"] or str(docker.get("root")).startswith("/var/snap/")
    if "fault" in docker or not ways["client"] or snap:
        message, remedy = _unusable(docker, ways, snap, own)
        yield Finding("docker", "error", plan.name, message, remedy)
        return
    if own:
        message = (
            f"{own} has a rootless Docker of its own: nothing here sees what its containers hold "
            "of memory and ports, or stops them"
        )
        remedy = (
            f"Stop it as {own}, `systemctl --user disable --now docker`, or keep models off it."
        )
        yield Finding("docker-second", "warning", plan.name, message, remedy)
    if _way(docker) is None:
        wanted_text = HOOK
        if _takes_cdi_first(docker["version"]):
            wanted_text += f", or {CDI_HOOK} and the CDI device {DEVICE}"
        found_text = ", ".join([*docker["hooks"], *docker["devices"]]) or "nothing of it"
        refusing = HOOK in docker["hooks"]
        if refusing:
            found_text += f', which refuses in the mode "{docker["mode"]}" of its config.toml'
        message = (
            f"`docker run --gpus all` gets no GPU: Docker {docker['version']} needs {wanted_text}; "
            f"found {found_text}"
        )
        remedy = (
            "Run `sudo apt-get install nvidia-container-toolkit` and `sudo systemctl restart "
            "docker` there."
        )
        if refusing:
            remedy = (
                "Run `sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto` "
                "there."
            )
        yield Finding("docker-gpu", "error", plan.name, message, remedy)


def _unusable(
    docker: dict[str, Any], ways: dict[str, Any], snap: bool, own: str
) -> tuple[str, str]:
    """Return the fault and the remedy, where units could start no container."""
    package = (
        "Install Docker's own package as DGX OS has it (`sudo apt-get install docker-ce` with "
        "docker.com's source, or Ubuntu's docker.io)"
    )
    if snap:
        message = "Docker is a snap here: it has neither docker.service nor the client of our units"
        return message, f"{package}, and take the snap out of use (`sudo snap disable docker`)."
    if "fault" not in docker:
        return f"there is no {DOCKER}, by which units start containers", f"{package}."
    message = f"Docker cannot be asked: {docker['fault']}"
    if own:
        message += f"; a rootless one answers, of {own}, and units cannot use that"
        return (
            message,
            f"{package}, and stop the rootless one (`systemctl --user disable --now docker`).",
        )
    if ways["said"]:
        message += f"; it said: {ways['said']}"
    if "buildkit" in ways["said"]:
        remedy = (
            "Run `sudo mv /var/lib/docker/buildkit /var/lib/docker/buildkit.broken` and `sudo "
            "systemctl restart docker` there: only the cache of builds is in it."
        )
        return message, remedy
    return message, "Run `systemctl status docker` and `journalctl -u docker -n 50` there."


def _way(docker: dict[str, Any]) -> str | None:
    return way(docker["version"], docker["hooks"], docker["devices"], docker.get("mode", ""))


def _cdi(plan: HostPlan, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield CDI files that name libraries of another driver than the running one."""
    driver, docker = facts["gpu"].get("driver_version"), facts["docker"]
    files: dict[str, str] = docker.get("cdi", {})
    # A device of /var/run/cdi goes before the same device of /etc/cdi.
    in_force = [path for path in files if not path.startswith("/etc/")] or list(files)
    stale = {
        path: version for path, version in files.items() if driver and version and version != driver
    }
    for path, made_for in stale.items():
        counts = path in in_force
        is_used = counts and _way(docker) == "cdi"
        if is_used:
            why = f"Docker {docker['version']} gives containers the libraries that it names"
        elif counts:
            why = f"Docker {docker['version']} takes NVIDIA's hook here and not this file"
        else:
            why = "the files of /var/run/cdi stand before it"
        message = f"{path} was made for driver {made_for}, and {driver} runs: {why}"
        severity: Severity = "error" if is_used else "warning"
        yield Finding("cdi-stale", severity, plan.name, message, _refresh_remedy(path))


def _refresh_remedy(path: str) -> str:
    """Return the remedy for a CDI file that differs from the driver: first the tool of DGX OS."""
    restart = "Run `sudo systemctl restart nvidia-cdi-refresh` there"
    if not path.startswith("/etc/"):
        return f"{restart}: it writes that file."
    return (
        f"{restart}, which writes /var/run/cdi, then `sudo rm {path}`; without that service "
        f"`sudo nvidia-ctk cdi generate --output={path}`."
    )
