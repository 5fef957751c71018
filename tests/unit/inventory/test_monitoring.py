"""Keys of monitoring, and the ring of recorders."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.pairing import LinkedPeer


def host(number: int, address: str | None = "", **monitoring: Any) -> Any:
    return spark(
        f"spark-{number}",
        fabric_address=f"10.77.0.{number}" if address == "" else address,
        monitoring={"enabled": True, **monitoring},
    )


def ring(*hosts: Any) -> dict[str, tuple[str | None, list[str]]]:
    """Host → its recorder, and the hosts that it records."""
    return {
        plan.name: (
            plan.ring.recorder and plan.ring.recorder.name,
            [peer.name for peer in plan.ring.recorded_hosts],
        )
        for plan in join_clusters(hosts, "site")
    }


def test_hosts_record_each_other_in_a_ring() -> None:
    first, second = join_clusters([host(1), host(2, exporter_port=9200)], "site")
    assert first.ring.recorder == LinkedPeer("spark-2", "10.77.0.2", 9200, 6666)
    assert first.ring.recorded_hosts == (LinkedPeer("spark-2", "10.77.0.2", 9200, 6666),)
    assert second.ring.recorder == LinkedPeer("spark-1", "10.77.0.1", 9100, 6666)
    assert first.ring.readers == ()
    assert ring(host(1), host(2), host(3)) == {
        "spark-1": ("spark-2", ["spark-3"]),
        "spark-2": ("spark-3", ["spark-1"]),
        "spark-3": ("spark-1", ["spark-2"]),
    }


def test_kernels_that_send_to_one_host_have_a_port_each() -> None:
    first, two, three = join_clusters(
        [host(1, netconsole_port=7000), host(2, prometheus=False), host(3)], ""
    )
    # The third records the first two, and the first the third; nobody is left for the second.
    assert two.ring.recorded_hosts == ()
    assert [peer.console for peer in three.ring.recorded_hosts] == [6666, 6667]
    consoles = {plan.name: plan.ring.recorder.console for plan in (first, two, three)}  # type: ignore[union-attr]
    assert consoles == {"spark-1": 6666, "spark-2": 6667, "spark-3": 7000}


def test_what_the_console_gets_is_raised_where_a_kernel_sends_it() -> None:
    own = spark(
        "spark-2",
        sysctls={"kernel.printk": "7 4 1 7"},
        fabric_address="10.77.0.2",
        monitoring={"enabled": True},
    )
    silent = host(3, netconsole=False)
    first, second, third = join_clusters([host(1), own, silent], "site")
    assert first.settings.sysctls["kernel.printk"] == "5 4 1 7"
    assert second.settings.sysctls["kernel.printk"] == "7 4 1 7"
    # That one is recorded without its kernel's words.
    assert third.ring.recorder and third.ring.recorder.console is None
    assert "kernel.printk" not in third.settings.sysctls
    (alone,) = join_clusters([host(1)], "site")
    assert "kernel.printk" not in alone.settings.sysctls


@pytest.mark.parametrize(
    "other_host",
    [host(2, enabled=False), host(2, None), host(2, "spark-2.fabric")],
    ids=["not monitored", "no address", "a name for an address"],
)
def test_one_that_nobody_can_reach_has_no_part(other_host: Any) -> None:
    assert ring(host(1), other_host) == {"spark-1": (None, []), "spark-2": (None, [])}


def test_prometheus_on_the_fast_link_is_for_the_other_monitored_hosts() -> None:
    hosts = [host(1, bind="fabric"), host(2), host(3, enabled=False)]
    first, second, _ = join_clusters(hosts, "site")
    assert [reader.name for reader in first.ring.readers] == ["spark-2"]
    assert second.ring.readers == ()
    with pytest.raises(InventoryError, match="fabric_address is no IP address"):
        host(1, None, bind="fabric")


@pytest.mark.parametrize(
    ("data", "ports"),
    [
        ({}, ["exporter_port", "prometheus_port", "alertmanager_port"]),
        ({"alertmanager": False}, ["exporter_port", "prometheus_port"]),
        ({"prometheus": False}, ["exporter_port"]),
        # Ports of what does not run are free.
        ({"enabled": False, "exporter_port": 8090}, []),
    ],
)
def test_what_runs_follows_from_what_is_on(data: dict[str, Any], ports: list[str]) -> None:
    assert list(host(1, **data).settings.monitoring.ports) == ports


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prometheus_port": 9100}, "monitoring.prometheus_port: port 9100 is used twice"),
        ({"alertmanager_port": 80}, "monitoring.alertmanager_port is not a port"),
        ({"bind": "0.0.0.0"}, "monitoring.bind"),
        ({"retention_gib": 0}, "monitoring.retention_gib is no size"),
        ({"exporter": True}, "unknown key 'exporter' in monitoring"),
    ],
)
def test_wrong_values_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InventoryError, match=message):
        host(1, **data)


def test_the_page_asks_prometheus_where_it_listens() -> None:
    def url(**monitoring: Any) -> str | None:
        return spark(fabric_address="fd00::1", monitoring=monitoring).settings.prometheus_url

    assert url() is url(enabled=True, prometheus=False) is None
    assert url(enabled=True) == "http://127.0.0.1:9090"
    assert url(enabled=True, bind="fabric", prometheus_port=9191) == "http://[fd00::1]:9191"
