"""Ports that nobody opened are closed to other machines, and SSH stays open, whatever happens."""

import pytest
from earlier_state import EarlierState
from stack import Host, Stack, until

# A program that somebody started, and a container whose port Docker publishes past INPUT.
STRAY = "systemd-run --quiet --collect --unit=stray python3 -m http.server 9990 --bind 0.0.0.0"
CONTAINER = (
    "docker run --detach --rm --name stray --publish 9991:9991 --entrypoint python3"
    " $(docker inspect --format '{{.Image}}' open-webui) -m http.server 9991"
)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(stack):
    """Leave the hosts as the next tests expect them."""
    yield
    stack.spark1.root("systemctl stop stray; docker rm -f stray")


def strays_listen(host: Host) -> None:
    """Start two programs anew that listen without permission."""
    until(lambda: host.show("open-webui", "ActiveState") == "active", "Open WebUI serves")
    host.root(f"systemctl stop stray; docker rm -f stray; {STRAY} && {CONTAINER}")
    until(lambda: answers(host, 9990) and answers(host, 9991), "both answer on the host itself")


def answers(host: Host, port: int) -> bool:
    """Tell whether a port says anything on the host's loopback."""
    return host.look(f"curl -s -o /dev/null --max-time 3 http://127.0.0.1:{port}/").code == 0


def reachable_ports(stack: Stack) -> dict[int, bool]:
    """Port of spark1 → whether spark2 gets a connection."""
    address, ports = stack.spark1.address, (22, 9990, 9991)
    tries = "; ".join(
        f"timeout 3 bash -c '</dev/tcp/{address}/{port}' 2>/dev/null; echo $?" for port in ports
    )
    codes = stack.two.root(tries).split()
    return {port: code == "0" for port, code in zip(ports, codes, strict=True)}


CLOSED = {22: True, 9990: False, 9991: False}


def test_only_what_was_opened_is_reached_from_another_machine(deployed_stack):
    strays_listen(deployed_stack.spark1)
    assert reachable_ports(deployed_stack) == CLOSED
    # Without the rules both are open: nothing else keeps anybody out.
    deployed_stack.spark1.root("systemctl stop lockstep-firewall")
    assert reachable_ports(deployed_stack) == dict.fromkeys(CLOSED, True)
    deployed_stack.spark1.root("systemctl start lockstep-firewall")
    assert reachable_ports(deployed_stack) == CLOSED


def test_after_a_power_cut_the_rules_are_there_before_anybody_logs_in(deployed_stack):
    """Docker starts after them, and the rules that it adds open nothing."""
    deployed_stack.lab("cycle", deployed_stack.spark1.name)
    strays_listen(deployed_stack.spark1)
    assert reachable_ports(deployed_stack) == CLOSED
    assert deployed_stack.spark1.show("lockstep-firewall.service", "ActiveState") == "active"


def test_rules_that_would_lock_everybody_out_are_taken_back(deployed_stack):
    earlier_rules = deployed_stack.spark1.root("nft list table inet lockstep")
    earlier_state = EarlierState.of(deployed_stack.spark1)
    inventory = deployed_stack.inventory("locked", firewall={"ssh_ports": [2222]})
    result = deployed_stack.deploy("-y", "--limit", "spark1", inventory=inventory)
    output = " ".join(result.output.split())
    assert result.code == 1
    assert "the firewall would lock you out: a new login fails" in output
    assert "name the port of sshd in firewall.ssh_ports" in output
    assert deployed_stack.spark1.root("nft list table inet lockstep") == earlier_rules
    assert reachable_ports(deployed_stack)[22]
    # Neither does a boot load them: what is kept for it, too, is among these files.
    assert earlier_state.differences() == []
