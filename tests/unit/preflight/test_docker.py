"""Preflight: by what `docker run --gpus all` gives a container the GPU, and CDI files of the past.

Which version of Docker takes what first is moby's own source (`lockstep/preflight/docker.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import findings

from lockstep.core.findings import Finding

DRIVER = "580.95.05"
ETC, RUN = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
HOOK, CDI_HOOK, DEVICE = "nvidia-container-runtime-hook", "nvidia-cdi-hook", "nvidia.com/gpu=all"
REFRESH = "sudo systemctl restart nvidia-cdi-refresh"


def docker_findings(**docker: Any) -> list[Finding]:
    return findings(docker=docker)


def ways(docker: dict[str, Any], **ways_facts: Any) -> list[Finding]:
    disks = {docker["root"]: {"device": 1, "free": 10**13}} if "root" in docker else {}
    return findings(docker=docker, docker_ways=ways_facts, disks=disks)


FAULT = {"fault": "Docker does not answer at /run/docker.sock: No such file or directory"}
# A snap's daemon has the host's socket; the client of units it has not.
SNAPS = {"root": "/var/snap/docker/common/var-lib-docker"}
BROKEN = "error initializing buildkit: invalid database"


@pytest.mark.parametrize(
    ("docker", "ways_facts", "message", "remedy"),
    [
        (SNAPS, {"client": False}, "Docker is a snap here", "`sudo snap disable docker`"),
        ({}, {"snap": True}, "Docker is a snap here", "docker-ce"),
        ({}, {"client": False}, "there is no /usr/bin/docker, by which units start", "docker-ce"),
        (
            *(FAULT, {"rootless": ["1000"]}, "a rootless one answers, of the account 1000"),
            "`systemctl --user disable --now docker`",
        ),
        (FAULT, {"said": BROKEN}, f"it said: {BROKEN}", "/var/lib/docker/buildkit.broken"),
    ],
)
def test_a_docker_that_units_cannot_use_is_refused(
    docker: dict[str, Any], ways_facts: dict[str, Any], message: str, remedy: str
) -> None:
    [finding] = ways(docker, **ways_facts)
    assert (finding.code, finding.severity) == ("docker", "error")
    assert message in finding.message and remedy in finding.remedy


def test_a_second_daemon_beside_the_hosts_is_a_warning() -> None:
    [finding] = ways({}, rootless=["1000"])
    assert (finding.code, finding.severity) == ("docker-second", "warning")
    assert finding.message.startswith("the account 1000 has a rootless Docker of its own")


def new(version: str = "29.2.1", **cdi: str) -> dict[str, Any]:
    """A Spark of 2026: toolkit 1.19 with both programs, and CDI files by path."""
    return {"version": version, "hooks": [HOOK, CDI_HOOK], "devices": [DEVICE], "cdi": cdi}


@pytest.mark.parametrize(
    ("version", "hooks", "devices", "works"),
    [
        # As shipped: no runtime `nvidia`, no CDI file (dgx-spark-playbooks#26).
        ("28.3.3", [HOOK], [], True),
        ("26.1.5+dfsg1", [HOOK, CDI_HOOK], [DEVICE], True),
        # Docker before 29 asks no CDI file for `--gpus`.
        ("28.5.2", [CDI_HOOK], [DEVICE], False),
        ("28.5.2", [], [], False),
        ("29.2.1", [HOOK], [], True),
        ("29.2.1", [CDI_HOOK], [DEVICE], True),
        ("29.2.1", [CDI_HOOK], ["nvidia.com/gpu=0"], False),
        ("29.2.1", [], [DEVICE], False),
        (None, [CDI_HOOK], [DEVICE], False),
    ],
)
def test_what_gpus_all_needs_is_asked_for_and_nothing_besides(
    version: str | None, hooks: list[str], devices: list[str], works: bool
) -> None:
    codes = [item.code for item in docker_findings(version=version, hooks=hooks, devices=devices)]
    assert codes == ([] if works else ["docker-gpu"])


@pytest.mark.parametrize(
    ("version", "mode", "devices", "works"),
    [
        ("28.5.2", "cdi", [DEVICE], False),
        ("28.5.2", "csv", [], False),
        ("28.5.2", "auto", [DEVICE], True),
        ("28.5.2", "legacy", [], True),
        ("29.2.1", "cdi", [DEVICE], True),
        ("29.2.1", "cdi", [], False),
    ],
)
def test_a_hook_that_refuses_in_its_mode_is_none(
    version: str, mode: str, devices: list[str], works: bool
) -> None:
    findings = docker_findings(version=version, hooks=[HOOK, CDI_HOOK], devices=devices, mode=mode)
    assert [item.code for item in findings] == ([] if works else ["docker-gpu"])
    for item in findings:
        assert f'which refuses in the mode "{mode}" of its config.toml' in item.message
        assert "--set nvidia-container-runtime.mode=auto" in item.remedy


def test_a_docker_that_gets_no_gpu_is_told_what_was_looked_for_and_found() -> None:
    [finding] = docker_findings(version="29.2.1", hooks=[CDI_HOOK])
    assert finding.severity == "error"
    assert finding.message == (
        "`docker run --gpus all` gets no GPU: Docker 29.2.1 needs nvidia-container-runtime-hook, "
        "or nvidia-cdi-hook and the CDI device nvidia.com/gpu=all; found nvidia-cdi-hook"
    )
    assert "apt-get install nvidia-container-toolkit" in finding.remedy


def test_a_cdi_file_for_the_driver_that_runs_or_for_none_that_it_names_is_no_finding() -> None:
    for made_for in (DRIVER, ""):
        assert docker_findings(**new(**{RUN: made_for})) == []


@pytest.mark.parametrize(
    ("docker", "severity", "why"),
    [
        (new(), "error", "Docker 29.2.1 gives containers the libraries that it names"),
        (new("28.5.2"), "warning", "Docker 28.5.2 takes NVIDIA's hook here and not this file"),
        # Toolkits before 1.16 have no such program: Docker takes the hook.
        (
            {**new(), "hooks": [HOOK]},
            "warning",
            "Docker 29.2.1 takes NVIDIA's hook here and not this file",
        ),
    ],
)
def test_a_stale_cdi_file_is_an_error_where_docker_uses_it(
    docker: dict[str, Any], severity: str, why: str
) -> None:
    [finding] = docker_findings(**{**docker, "cdi": {RUN: "575.1"}})
    assert (finding.code, finding.severity) == ("cdi-stale", severity)
    assert finding.message == f"{RUN} was made for driver 575.1, and {DRIVER} runs: {why}"
    assert finding.remedy == f"Run `{REFRESH}` there: it writes that file."


def test_a_stale_file_of_etc_is_removed_once_the_service_has_written_its_own() -> None:
    [finding] = docker_findings(**new(**{ETC: "575.1"}))
    assert finding.severity == "error"
    first, _, remainder = finding.remedy.partition(f"`{REFRESH}`")
    assert (first, remainder.count(ETC)) == ("Run ", 2)
    assert f"`sudo rm {ETC}`" in remainder
    assert f"`sudo nvidia-ctk cdi generate --output={ETC}`" in remainder
    [finding] = docker_findings(**new(**{ETC: "575.1", RUN: DRIVER}))
    assert (finding.severity, finding.message.partition(": ")[2]) == (
        "warning",
        "the files of /var/run/cdi stand before it",
    )
    # The other way round it is the service's own file that is in force.
    [finding] = docker_findings(**new(**{ETC: DRIVER, RUN: "575.1"}))
    assert (finding.severity, finding.message.split()[0]) == ("error", RUN)
