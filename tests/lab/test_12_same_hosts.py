"""Two freshly deployed hosts are the same, and what does not answer is never called so."""

from __future__ import annotations

from stack import Stack


def test_two_freshly_deployed_hosts_have_no_drift(deployed: Stack) -> None:
    done = deployed.diff()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "No drift: 2 hosts as inventory and record ask and as each other.\n"


def test_a_host_that_cannot_be_reached_is_no_twin(deployed: Stack) -> None:
    inventory = deployed.inventory("unreachable", spark2__ssh_hostname="10.77.0.99")
    done = deployed.diff(inventory=inventory)
    assert done.returncode == 2
    assert "spark2: could not tell: no connection" in done.stdout
    assert "No drift" not in done.stdout


def test_a_part_that_cannot_be_read_is_said_and_not_called_the_same(deployed: Stack) -> None:
    deployed.two.root("mv /usr/bin/dpkg-query /usr/bin/dpkg-query.away")
    try:
        done = deployed.diff()
    finally:
        deployed.two.root("mv /usr/bin/dpkg-query.away /usr/bin/dpkg-query")
    assert done.returncode == 2
    assert "spark2: could not tell: packages: dpkg-query ended with 127" in done.stdout
    assert "apt package" not in done.stdout and "No drift" not in done.stdout
