"""Gateways that name each other: each end must know the other, and where it is."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.inventory.cluster_join import join_clusters
from lockstep.onhost.gateway.configuration import PeerGateway

BOTH = ("one", "two")


def host(name: str, peers: tuple[str, ...] = BOTH, **data: Any) -> Any:
    address = f"10.77.0.{11 + BOTH.index(name)}"
    return spark(name, **{"gateway": {"peers": peers}, "fabric_address": address, **data})


def test_each_host_has_the_others_of_a_list_that_names_all() -> None:
    first, two = join_clusters(
        [host("one"), host("two", gateway={"peers": BOTH, "port": 9000})], "site"
    )
    assert first.peers == (PeerGateway("two", "10.77.0.12", 9000),)
    assert two.peers == (PeerGateway("one", "10.77.0.11", 8090),)


def test_without_peers_there_are_none() -> None:
    first, two = join_clusters([host("one", ()), host("two", (), fabric_address=None)], "site")
    assert first.peers == two.peers == ()


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([host("one", ("two", "three")), host("two")], "names hosts that the inventory does not"),
        ([host("one"), host("two", fabric_address=None)], "two has no fabric_address"),
        ([host("one"), host("two", ())], "names two, whose own do not name one"),
    ],
)
def test_what_cannot_be_is_refused(hosts: list[Any], message: str) -> None:
    with pytest.raises(InventoryError, match=message) as error:
        join_clusters(hosts, "site.py")
    assert str(error.value).startswith("site.py: ")
