"""Two hosts that serve one model, and a wrong address of their link that costs nobody a host."""

import json
from unittest.mock import ANY

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
    earlier_packages, groups = package_names(host), group_names(host)
    host.root(
        "apt-get -qq install -y --no-install-recommends netplan.io >/dev/null;"
        f"{UDEV}; ip link add enp1s0f0np0 type veth peer name far0; ip link set far0 up"
    )
    yield host
    host.root(
        f"rm -f {NETPLAN}; netplan apply; ip link delete far0; rm -f /usr/local/sbin/udevadm;"
        "systemctl disable --now --quiet systemd-networkd.socket systemd-networkd || true"
    )
    host.root(
        f"apt-get -qq purge -y {' '.join(sorted(package_names(host) - earlier_packages))} "
        ">/dev/null"
    )
    for group in sorted(group_names(host) - groups):
        host.root(f"groupdel {group}")
    host.root(
        "rm -f /etc/systemd/system/*.wants/netplan-*; systemctl daemon-reload;"
        "systemctl reset-failed"
    )


def package_names(host: Host) -> set[str]:
    """Names of the Debian packages on a host."""
    return set(host.root("dpkg-query -W -f '${Package}\\n'").split())


def group_names(host: Host) -> set[str]:
    """Names of the groups on a host."""
    return set(host.root("getent group | cut -d: -f1").split())


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
    result = deployed_stack.good_deploy("-y", "--limit", "spark1", inventory=right)
    assert addresses(linked_host)["enp1s0f0np0"] == (9000, ["10.88.0.11/24"])
    assert linked_host.root(f"stat -c %a {NETPLAN}").strip() == "600"
    assert "Fabric | Give the fast link its addresses" in result.output
    earlier_addresses, earlier_state = addresses(linked_host), EarlierState.of(linked_host)
    # Somebody removes the address and the large frames.
    linked_host.root(
        "ip address del 10.88.0.11/24 dev enp1s0f0np0; ip link set enp1s0f0np0 mtu 1500"
    )
    document = deployed_stack.diff("--json", "--limit", "spark1", inventory=right).stdout
    rows = [row for row in json.loads(document)["differences"] if row["kind"] == "fast link"]
    assert sorted((row["item"], row["expected"], row["found"], row["how"]) for row in rows) == [
        ("enp1s0f0np0 MTU", "9000", "1500", "deploy"),
        ("enp1s0f0np0 addresses", "10.88.0.11/24", ANY, "deploy"),
    ]
    mending = deployed_stack.good_deploy("-y", "--limit", "spark1", inventory=right)
    assert mending.changed_operations == {"Fabric | Give the fast link its addresses"}
    assert addresses(linked_host) == earlier_addresses
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
