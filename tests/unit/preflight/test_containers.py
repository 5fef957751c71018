"""Preflight: containers and volumes that have our names and that no deploy has made."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import findings, pins_for, spark

from lockstep import preflight
from lockstep.core.findings import FATAL, Finding
from lockstep.onhost.docker import docker_api
from lockstep.onhost.docker.docker_api import LABEL

# As NVIDIA's playbook has it: `docker run -p 8080:8080 -v open-webui:… --name open-webui`.
PLAYBOOK = {"open-webui": {"id": "0123", "ports": [8080]}}


def foreign_findings(
    adopt: tuple[str, ...] = (), listeners: dict[str, Any] | None = None, **foreign: Any
) -> list[Finding]:
    plan = spark(adopt=adopt)
    return findings(plan, docker={"foreign": foreign}, listeners=listeners or {})


def test_the_playbooks_container_and_volume_are_refused_with_two_ways_out() -> None:
    container, volume = foreign_findings(containers=PLAYBOOK, volumes=["open-webui"])
    assert {item.code for item in (container, volume)} == {"not-ours"} <= FATAL
    assert container.message == (
        "there is a container open-webui without the label lockstep.unit: Lockstep did not make it"
    )
    assert "`webui.unit`" in container.remedy and '("container open-webui",)' in container.remedy
    assert "`webui.volume`" in volume.remedy and '("volume open-webui",)' in volume.remedy
    assert "logins and passwords are then those that it has" in volume.remedy


def test_an_engines_container_and_cache_are_no_less_somebody_elses() -> None:
    engine = {"vllm-qwen36": {"id": "1", "ports": []}}
    container, volume = foreign_findings(containers=engine, volumes=["vllm-qwen36-cache"])
    assert "models.NAME.unit" in container.remedy
    assert "sudo docker volume rm vllm-qwen36-cache" in volume.remedy


def test_what_the_inventory_adopts_is_no_finding_and_only_that() -> None:
    foreign_things = {"containers": PLAYBOOK, "volumes": ["open-webui"]}
    assert foreign_findings(("container open-webui", "volume open-webui"), **foreign_things) == []
    assert [
        item.message.split()[3]
        for item in foreign_findings(("volume open-webui",), **foreign_things)
    ] == ["container"]


@pytest.mark.parametrize(
    "unit", ["/system.slice/docker.service", "/system.slice/docker-0123.scope"]
)
def test_the_port_of_a_container_that_is_to_go_is_free(unit: str) -> None:
    port = {"8080": {"process": "docker-proxy", "unit": unit, "ours": False}}
    assert foreign_findings(("container open-webui",), port, containers=PLAYBOOK) == []
    codes = [item.code for item in foreign_findings((), port, containers=PLAYBOOK)]
    assert codes == ["not-ours", "port-taken"]


def test_another_port_is_taken_also_beside_a_container_that_is_to_go() -> None:
    port = {
        "8000": {"process": "docker-proxy", "unit": "/system.slice/docker.service", "ours": False}
    }
    codes = [
        item.code for item in foreign_findings(("container open-webui",), port, containers=PLAYBOOK)
    ]
    assert codes == ["port-taken"]


CHECKPOINTS = ("vllm-qwen36", "vllm-qwen36-fallback", "sglang-mistral4")


def test_a_host_is_asked_for_every_name_that_our_units_use() -> None:
    plan = spark()
    question = preflight.questions(plan, pins_for(plan))["docker"]
    assert question["containers"] == [*CHECKPOINTS, "open-webui"]
    assert question["volumes"] == [*(f"{name}-cache" for name in CHECKPOINTS), "open-webui"]
    off = spark(webui={"enabled": False})
    assert "open-webui" not in preflight.questions(off, pins_for(off))["docker"]["volumes"]


def test_host_and_deploy_know_one_label() -> None:
    assert docker_api.LABEL == LABEL
