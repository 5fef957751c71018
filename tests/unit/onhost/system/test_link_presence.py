"""A rank is started only where its fast link is: without its cable a Spark has none of it."""

import ssl
from dataclasses import replace

import pytest
from a_model import about, tell
from onhost_fakes import FakeDocker, host_root

from lockstep.onhost.cluster import lone_rank_refusal, member_server, run_records
from lockstep.onhost.core import config, errors, layout, topology
from lockstep.onhost.docker import docker_api
from lockstep.onhost.switching import precheck
from lockstep.onhost.system import link_presence
from lockstep.onhost.systemd import units

PORT_PAIR = {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0"}
LINK_FOLDERS = [
    f"sys/class/{place}"
    for interface, device in PORT_PAIR.items()
    for place in (f"net/{interface}", f"infiniband/{device}")
]
MEMBERS = [{"name": f"spark{rank}", "address": f"192.0.2.{rank}"} for rank in (1, 2)]
PAIR = {"name": "pair", "rank": 0, "port": 7079, "members": MEMBERS, "links": PORT_PAIR}
GLM = about(unit="vllm-glm.service", model="glm")


@pytest.fixture
def paths(tmp_path) -> layout.Paths:
    """A host that is a member, with both interfaces of a port and their RDMA devices."""
    models = {"glm": {**GLM, "cluster": "pair"}, "own": {**GLM, "unit": "vllm-own.service"}}
    paths = host_root(tmp_path / "root", models)
    tell(paths, clusters={"pair": PAIR})
    for folder in LINK_FOLDERS:
        (paths.root / folder).mkdir(parents=True)
    paths.run.mkdir(parents=True, exist_ok=True)
    return paths


def unplug(paths: layout.Paths) -> None:
    """Unplug the cable as DGX OS does: both functions of the port are gone."""
    for folder in LINK_FOLDERS:
        (paths.root / folder).rmdir()


def test_no_rank_starts_with_a_device_that_is_not_there(paths):
    part = run_records.SwitchPart("1", "anna", "spark1", "glm", None).with_admitted("glm")
    run_records.save_switch_part(paths, part)
    assert lone_rank_refusal.main(["admit", "glm"], paths) == 0
    unplug(paths)
    message = r"spark1 has no network interface enp1s0f0np0 .*stopped\. Remedy: plug the cable in"
    with pytest.raises(errors.Problem, match=message):
        lone_rank_refusal.main(["admit", "glm"], paths)
    # What needs no link starts.
    assert lone_rank_refusal.main(["admit", "own"], paths) == 0


def test_an_rdma_device_that_is_gone_is_missed_by_a_link_with_rdma_only(paths):
    (paths.root / "sys/class/infiniband/rocep1s0f0").rmdir()
    pair = config.load_host(paths.models).clusters["pair"]
    with pytest.raises(errors.Problem, match="has no RDMA device rocep1s0f0 at enp1s0f0np0"):
        link_presence.refuse_missing_links("glm", pair, paths)
    link_presence.refuse_missing_links("glm", replace(pair, links={"enp1s0f0np0": ""}), paths)


def test_a_member_refuses_before_anything_is_stopped(paths, systemd):
    host = config.load_host(paths.models)
    for model in host.models.values():
        systemd.unit(model.unit)
    docker = FakeDocker(paths.docker_socket)
    unplug(paths)
    unit_states = units.units_by_name(model.unit for model in host.models.values())
    check = precheck.Precheck(host, paths, docker_api.Docker(paths.docker_socket), unit_states)
    try:
        with pytest.raises(errors.Problem, match="no network interface enp1s0f0np0"):
            check.check_start(host.model("glm"))
        check.check_start(host.model("own"))
    finally:
        docker.close()


def test_the_agent_listens_at_an_address_that_comes_with_the_cable():
    """Documentation's own network (RFC 5737, 3849): no machine has an address of it."""
    for address in ("192.0.2.1", "2001:db8::1"):
        member = topology.TopologyMember("spark1", address)
        pair = topology.Cluster("pair", 0, 7079, (member,))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server = member_server.ClusterServer([pair], tls, lambda *_: {})
        server.server_close()
