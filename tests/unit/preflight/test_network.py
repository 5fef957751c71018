"""Preflight: a ConnectX port without its cable is no broken host, and another missing one is."""

from __future__ import annotations

import pytest
from a_spark import findings, spark

from lockstep.core.findings import Finding
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan

PORT_PAIR = ("enp1s0f0np0", "enP2p1s0f0np0")


def member(**fabric: object) -> HostPlan:
    """The first of two Sparks, with a model of its own beside the cluster's."""
    own = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"}
    glm = {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-glm", "cluster": "pair", "port": 30002}
    plans = [
        spark(
            name,
            models={"qwen": own, "glm": glm},
            clusters={"pair": {"hosts": ("one", "two")}},
            fabric_address=f"10.77.0.{number}",
            fabric={"interfaces": {PORT_PAIR[0]: f"10.77.0.{number}/24"}, **fabric},
        )
        for number, name in enumerate(("one", "two"), 11)
    ]
    return join_clusters(plans, "site.py")[0]


def network_findings(plan: HostPlan, *absent: str, wireless: str = "") -> list[Finding]:
    return findings(plan, fabric={"wireless": wireless, "absent": list(absent)}, lacking=[])


def test_a_port_without_its_cable_stops_the_clusters_models_and_nothing_else() -> None:
    [finding] = network_findings(member(), *PORT_PAIR)
    assert (finding.code, finding.severity) == ("no-cable", "warning")
    assert finding.message == (
        "there is no network interface enp1s0f0np0 nor enP2p1s0f0np0, which `fabric` names: DGX "
        "OS hides a ConnectX port while its cable is out or the Spark at its other end is off. "
        "Models that do not start without: glm"
    )
    assert finding.remedy == (
        "Plug the cable in; `sudo rm /etc/nvidia/cx7-hotplug-enabled` and a reboot keep the port "
        "without one."
    )


@pytest.mark.parametrize("name", ["enp1s0f0", "enP7s7", "eth0", "enp1s0f0np0.100"])
def test_an_interface_that_no_cable_brings_is_an_error(name: str) -> None:
    errors = network_findings(member(), name)
    assert [(item.code, item.severity) for item in errors] == [("no-interface", "error")]
    assert errors[0].message == f"there is no network interface {name}, which `fabric` names"


def test_one_of_each_is_one_finding_of_each() -> None:
    assert [item.code for item in network_findings(member(), PORT_PAIR[0], "eth0")] == [
        "no-cable",
        "no-interface",
    ]


def test_wifi_is_warned_of_where_the_deploy_is_to_write_the_addresses() -> None:
    [finding] = network_findings(member(netplan=True), wireless="wlP9s9")
    assert (finding.code, finding.severity) == ("wifi", "warning")
    assert finding.message.startswith("it is reached by wlP9s9, and `netplan apply`")
    assert network_findings(member(netplan=False), wireless="wlP9s9") == []
