"""Two freshly deployed hosts are the same, from one download."""

import re

from copies import OWN, address, fetched_bytes, hashes, nothing_is_left


def test_what_no_host_had_was_downloaded_once_and_copied(deployed_stack, first):
    first_host, two = deployed_stack.hosts
    took = fetched_bytes(deployed_stack)
    origin, copier = took[address(first_host)], took[address(two)]
    assert {name: size for name, size in copier.items() if name not in OWN and size} == {}
    assert origin["hub"] > 50_000_000
    assert origin["registry"] > 20_000_000
    assert origin["wheels"] > 500_000_000
    assert origin["git"] > 1_000
    assert re.search(r"\[spark2\] engine, vllm: 4\d\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] weights: [4-9]\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] image \S+: 2\d\.\d MB copied from spark1", first.output)
    assert hashes(first_host) == hashes(two)
    list_command = "docker images --digests --format '{{.Repository}}@{{.Digest}} {{.ID}}' | sort"
    assert first_host.root(list_command) == two.root(list_command) != ""
    nothing_is_left(deployed_stack)


def test_two_freshly_deployed_hosts_have_no_drift(deployed_stack):
    result = deployed_stack.diff()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "No drift: 2 hosts as inventory and record ask and as each other.\n"
