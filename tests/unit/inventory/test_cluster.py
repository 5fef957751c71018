"""Hosts that need each other: what is refused, and what each rank or gateway is told."""

from typing import Any

import pytest
from a_spark import GLM, of_pair, spark

from lockstep.core.errors import InventoryError
from lockstep.inventory.cluster import ClusterData, ClusterMembers, Fabric, Member
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.gateway.configuration import PeerGateway

VLLM, SGLANG = ENGINES["vllm"], ENGINES["sglang"]
# What NCCL is to write into the log, and at once.
SAID = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "PYTHONUNBUFFERED": "1"}


def host(name: str, number: int, **data: Any) -> HostPlan:
    """A member of the pair, with ``data`` in place of some of it."""
    return spark(name, **of_pair(number, **data))


def test_each_member_knows_its_rank_and_all_addresses_in_rank_order() -> None:
    # Ranks are data: the inventory lists the hosts the other way round. A third is of no cluster.
    alone = spark("spark-3", **pair())
    hosts = [host("spark-2", 12), host("spark-1", 11), alone]
    first, second, third = join_clusters(hosts, "site.py")
    (rank_one,), (zero,) = first.groups, second.groups
    assert (zero.rank, zero.address, zero.peer_addresses) == (0, "10.77.0.11", ("10.77.0.12",))
    assert (rank_one.rank, rank_one.address, rank_one.master) == (1, "10.77.0.12", "10.77.0.11")
    assert (first.models[0].answers, second.models[0].answers) == (False, True)
    assert (first.models[0].ports, second.models[0].ports) == ((), (30001,))
    assert third.groups == ()


def pair(*hosts: str, **more: Any) -> dict[str, Any]:
    """Data of the cluster, of the two where nobody is named."""
    return {"clusters": {"pair": {"hosts": hosts or ("spark-1", "spark-2"), **more}}}


def link_settings(**addresses: str) -> dict[str, Any]:
    return {"fabric": {"interfaces": addresses}}


SAME_ADDRESS = {"fabric_address": "10.77.0.11", "fabric": {"socket": "enp1s0f0np0"}}
OTHER_PORT = {"models": {"glm": {**GLM, "port": 31000}}}
OTHER_MODEL = {"q": {"recipe": "gpt-oss-120b", "unit": "q"}}
OTHER_NETWORK = {"fabric_address": "10.78.0.12", **link_settings(enp1s0f0np0="10.78.0.12/24")}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pair(port=7080), "clusters.pair must be the same on all hosts"),
        ({"rollout": "all"}, 'rollout "all" does not go with cluster pair; found rollout'),
        ({"boot": "glm"}, "whose model it names; found 'none' on spark-1, 'glm' on spark-2."),
        ({"fabric_address": "spark-2.fast"}, "found 'spark-2.fast'"),
        (SAME_ADDRESS, "have one fabric_address; found 10.77.0.11 on spark-1 and spark-2"),
        ({"fabric": {}}, "interface of spark-2's fabric_address is not known; found 10.77.0.12"),
        (OTHER_PORT, "models.glm of cluster pair must be the same on all its members"),
        ({"models": OTHER_MODEL}, "found another one, or none, on spark-1 and spark-2"),
        (OTHER_NETWORK, "do not make a pair; found 10.77.0.0/24 on 1 of 2, 10.78.0.0/24 on 1 of 2"),
    ],
)
def test_members_that_do_not_agree_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InventoryError) as fault:
        join_clusters([host("spark-1", 11), host("spark-2", 12, **data)], "site.py")
    assert str(fault.value).startswith("site.py: ") and message in str(fault.value)


def test_a_member_that_the_inventory_does_not_have_is_named() -> None:
    with pytest.raises(InventoryError, match=r"found spark-2; allowed: spark-1\. Name them"):
        join_clusters([host("spark-1", 11)], "site.py")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"clusters": {"Pair": {"hosts": ()}}}, "clusters.Pair is not a name for a cluster"),
        (pair("spark-1"), "clusters.pair.hosts is no pair"),
        (pair(topology="ring"), "clusters.pair.hosts is no ring; found 2 hosts; allowed: 2 in a"),
        (pair("spark-1", "spark-1"), "clusters.pair.hosts names a host twice"),
        (pair(topology="star"), "clusters.pair.topology is not known; found 'star'; allowed: pair"),
        (pair("spark-2", "spark-3"), "models.glm is of cluster pair, and spark-1 is no member"),
        (pair(port=7077), "clusters.pair.port: port 7077 is used twice; found also by copy_port"),
        (link_settings(a="10.7.0.1/24", b="10.7.0.2/24"), "b is in the network of a; found 10.7."),
        ({"fabric": {"mtu": 90000}}, "fabric.mtu is not a size for a frame; found 90000"),
        ({"fabric": {"rdma": {"enp1s0f0np0": "x y"}}}, "fabric.rdma.enp1s0f0np0 is no RDMA device"),
        ({"fabric": {"rdma": {"enp1": "rocep1"}}}, "fabric.rdma.enp1 names no interface of the"),
        ({"fabric": {"socket": "a b"}}, "fabric.socket is no network interface; found 'a b'"),
        ({"fabric": {"netplan": True}}, "fabric.netplan is on and fabric.interfaces is empty"),
    ],
)
def test_wrong_data_of_one_host_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InventoryError) as fault:
        host("spark-1", 11, **data)
    assert message in str(fault.value)


def ring(count: int, astray: int | None = None) -> list[HostPlan]:
    """Sparks whose cables are a network each between two peers; that of `astray` leads nowhere."""
    names = tuple(f"spark-{rank}" for rank in range(count))
    plans = []
    for rank, name in enumerate(names):
        left_rank, right = (rank - 1) % count, rank if rank != astray else 99
        cables = {"enp1s0f0np0": f"10.77.{left_rank}.2/30", "enp1s0f1np1": f"10.77.{right}.1/30"}
        more = {
            "models": {"glm": {**GLM, "cluster": "ring"}},
            "clusters": {"ring": {"hosts": names, "topology": "ring"}},
            "fabric_address": f"192.168.1.{10 + rank}",
            "fabric": {"socket": "enP7s7", "interfaces": cables},
        }
        plans.append(host(name, 10 + rank, **more))
    return plans


def test_a_ring_of_four_meets_over_the_management_network_and_talks_over_its_cables() -> None:
    plans = join_clusters(ring(4), "site.py")
    (group,) = plans[2].groups
    assert group.environment(VLLM) == {
        "GLOO_SOCKET_IFNAME": "enP7s7",
        "NCCL_SOCKET_IFNAME": "enP7s7",
        **SAID,
        "VLLM_HOST_IP": "192.168.1.12",
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "rocep1s0f0,rocep1s0f1",
        "NCCL_ALGO": "Ring",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_MERGE_NICS": "0",
    }
    # Of three, each is adjacent to the others: no special settings.
    (three,) = join_clusters(ring(3), "site.py")[0].groups
    assert "NCCL_ALGO" not in three.environment(VLLM)


def test_a_ring_with_a_cable_in_the_wrong_place_is_refused() -> None:
    message = r"do not make a ring; found 10\.77\.1\.0/30 on 1 of 3, 10\.77\.99\.0/30 on 1 of 3"
    with pytest.raises(InventoryError, match=message):
        join_clusters(ring(3, astray=1), "site.py")


def group(rank: int) -> ClusterMembers:
    members = tuple(
        Member(f"spark-{number}", f"10.77.0.{11 + number}", (f"10.77.0.{11 + number}",))
        for number in (0, 1)
    )
    data = ClusterData(hosts=("spark-0", "spark-1"))
    return ClusterMembers("pair", rank, members, data, "host0", ())


def test_the_words_that_make_an_engine_a_rank_with_a_copy_of_its_own() -> None:
    """Without copies they stand in `tests/render/golden`."""
    assert group(1).arguments(VLLM, data_parallel=2) == {
        "data_parallel_size_local": 1,
        "data_parallel_start_rank": 1,
        "data_parallel_address": "10.77.0.11",
        "data_parallel_rpc_port": 29501,
        "headless": True,
    }


def test_a_host_without_rdma_is_told_nothing_of_it() -> None:
    sockets = {"GLOO_SOCKET_IFNAME": "host0", "NCCL_SOCKET_IFNAME": "host0"}
    assert group(0).environment(SGLANG) == sockets | SAID


def test_rdma_devices_are_those_of_dgx_os_unless_the_data_say_otherwise() -> None:
    names = ("enP2p1s0f0np0", "enp1s0f1np1", "enP7s7", "host0")
    interfaces = {name: f"10.{number}.0.1/24" for number, name in enumerate(names)}
    fabric = Fabric(interfaces, rdma={"host0": "mlx5_0", "enp1s0f1np1": ""})
    assert fabric.devices == {"enP2p1s0f0np0": "roceP2p1s0f0", "host0": "mlx5_0"}


BOTH = ("one", "two")


def gateway_host(name: str, peers: tuple[str, ...] = BOTH, **data: Any) -> HostPlan:
    address = f"10.77.0.{11 + BOTH.index(name)}"
    return spark(name, **{"gateway": {"peers": peers}, "fabric_address": address, **data})


def test_gateways_of_a_list_that_names_all_have_each_other() -> None:
    hosts = [gateway_host("one"), gateway_host("two", gateway={"peers": BOTH, "port": 9000})]
    first, second = join_clusters(hosts, "site")
    assert first.peers == (PeerGateway("two", "10.77.0.12", 9000),)
    assert second.peers == (PeerGateway("one", "10.77.0.11", 8090),)


@pytest.mark.parametrize(
    ("peers", "second", "message"),
    [
        (("two", "three"), gateway_host("two"), "names hosts that the inventory does not"),
        (BOTH, gateway_host("two", fabric_address=None), "two has no fabric_address"),
        (BOTH, gateway_host("two", ()), "names two, but gateway.peers of two does not name one"),
    ],
)
def test_gateways_that_do_not_know_each_other_are_refused(peers: tuple[str, ...], second, message):
    with pytest.raises(InventoryError, match=rf"site\.py: .*{message}"):
        join_clusters([gateway_host("one", peers), second], "site.py")
