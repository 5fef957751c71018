"""Two hosts that serve one model, and a wrong address of their link that costs nobody a host."""

import json

import pytest
from earlier_state import EarlierState
from stack import REPOSITORY, Host, until

NETPLAN = "/etc/netplan/40-cx7.yaml"
#: The port of Ethernet that the deploy itself comes through.
OURS = "enP7s7"
# netplan asks udev, which a container does not have.
UDEV = "printf '#!/bin/sh\\nexit 0\\n' > /usr/local/sbin/udevadm; chmod +x /usr/local/sbin/udevadm"


@pytest.fixture
def linked_host(deployed_stack):
    """spark1 with netplan, as DGX OS has it, and one more port; undone afterwards."""
    host = deployed_stack.spark1
    packages, groups = "dpkg-query -W -f '${Package}\\n'", "getent group | cut -d: -f1"
    earlier_packages, earlier_groups = names(host, packages), names(host, groups)
    host.root(
        "apt-get -qq install -y --no-install-recommends netplan.io >/dev/null;"
        f"{UDEV}; ip link add enp1s0f0np0 type veth peer name far0; ip link set far0 up"
    )
    yield host
    host.root(
        f"rm -f {NETPLAN}; netplan apply; ip link delete far0; rm -f /usr/local/sbin/udevadm;"
        "systemctl disable --now --quiet systemd-networkd.socket systemd-networkd || true"
    )
    new_packages = " ".join(sorted(names(host, packages) - earlier_packages))
    host.root(f"apt-get -qq purge -y {new_packages} >/dev/null")
    for group in sorted(names(host, groups) - earlier_groups):
        host.root(f"groupdel {group}")
    host.root(
        "rm -f /etc/systemd/system/*.wants/netplan-*; systemctl daemon-reload;"
        "systemctl reset-failed"
    )
    deployed_stack.good_deploy("-y", "--limit", "spark1")


def names(host: Host, command: str) -> set[str]:
    """The words that a command prints."""
    return set(host.root(command).split())


def addresses(host: Host) -> dict[str, tuple[int, list[str]]]:
    """Interface → MTU and IPv4 addresses."""
    interfaces = json.loads(host.root("ip -json -4 address show"))
    return {
        interface["ifname"]: (
            interface["mtu"],
            [f"{entry['local']}/{entry['prefixlen']}" for entry in interface["addr_info"]],
        )
        for interface in interfaces
    }


def test_the_link_gets_its_addresses_and_a_wrong_file_loses_nobody(deployed_stack, linked_host):
    fabric = {"interfaces": {"enp1s0f0np0": "10.88.0.11/24"}, "netplan": True, "mtu": 9000}
    right = deployed_stack.inventory("right", spark1__fabric=fabric)
    deployed_stack.good_deploy("-y", "--limit", "spark1", inventory=right)
    assert addresses(linked_host)["enp1s0f0np0"] == (9000, ["10.88.0.11/24"])
    assert linked_host.root(f"stat -c %a {NETPLAN}").strip() == "600"
    earlier_addresses, earlier_state = addresses(linked_host), EarlierState.of(linked_host)
    # An address of another network for the port that the deploy comes through.
    fabric["interfaces"] = {OURS: "10.99.0.11/24"}
    wrong = deployed_stack.inventory("wrong", spark1__fabric=fabric)
    failure = deployed_stack.deploy("-y", "--limit", "spark1", inventory=wrong)
    assert failure.code == 1
    assert "Fabric | Give the fast link its addresses" in failure.output
    # The host is back by itself, with what it had.
    until(lambda: linked_host.run("true").code == 0, "spark1 lets its operator in again")
    until(lambda: addresses(linked_host) == earlier_addresses, "spark1 has its addresses again")
    assert earlier_state.differences() == []
    assert (
        linked_host.root("systemctl is-active lockstep-fabric-back.timer || true").strip()
        != "active"
    )


def test_the_lab_proves_tcp_and_says_so(deployed_stack):
    target_path = REPOSITORY / "inventories/lab_cluster.py"
    result = deployed_stack.lockstep("cluster check", inventory=target_path)
    assert result.code == 0, result.text
    assert "whole frames reach spark2 at 10.77.0.12" in result.out
    assert "This proved TCP only: no member that answered has an RDMA device." in result.out
