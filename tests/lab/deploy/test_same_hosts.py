"""Two freshly deployed hosts are the same, from one download; what does not answer is no twin.

Both hosts wiped and built again from one lock: `python tests/proofs/rebuilding.py`.
"""

from __future__ import annotations

import re

from copies import OWN, address, fetched, hashes, nothing_is_left
from stack import Deployed, Stack


def test_what_no_host_had_was_downloaded_once_and_copied(deployed: Stack, first: Deployed) -> None:
    one, two = deployed.hosts
    took = fetched(deployed)
    origin, copier = took[address(one)], took[address(two)]
    assert {name: size for name, size in copier.items() if name not in OWN and size} == {}
    assert origin["hub"] > 50_000_000
    assert origin["registry"] > 20_000_000
    assert origin["wheels"] > 500_000_000
    assert origin["git"] > 1_000
    assert re.search(r"\[spark2\] engine, vllm: 4\d\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] weights: [4-9]\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] image \S+: 2\d\.\d MB copied from spark1", first.output)
    assert hashes(one) == hashes(two)
    listed = "docker images --digests --format '{{.Repository}}@{{.Digest}} {{.ID}}' | sort"
    assert one.root(listed) == two.root(listed) != ""
    nothing_is_left(deployed)


def test_two_freshly_deployed_hosts_have_no_drift(deployed: Stack) -> None:
    done = deployed.diff()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "No drift: 2 hosts as inventory and record ask and as each other.\n"


def test_a_host_or_a_part_that_cannot_be_read_is_said_and_not_called_the_same(
    deployed: Stack,
) -> None:
    inventory = deployed.inventory("unreachable", spark2__ssh_hostname="10.77.0.99")
    deployed.one.root("mv /usr/bin/dpkg-query /usr/bin/dpkg-query.away")
    try:
        done = deployed.diff(inventory=inventory)
    finally:
        deployed.one.root("mv /usr/bin/dpkg-query.away /usr/bin/dpkg-query")
    assert done.returncode == 2
    assert "spark1: could not tell: packages: dpkg-query ended with 127" in done.stdout
    assert "spark2: could not tell: no connection" in done.stdout
    assert "apt package" not in done.stdout and "No drift" not in done.stdout
