"""Two freshly deployed hosts are the same, from one download."""

import re
from collections import Counter

from copies import hashes, nothing_is_left

#: Server → the least that is fetched from it, bytes. Of packages those of the engine alone count:
#: apt's, uv and our tools are what each host fetches for itself.
LEAST = {"hub": 50_000_000, "registry": 20_000_000, "git": 1_000, "web": 150_000_000}
ENGINE = ("/torch/torch/", "/flashinfer/", "/simple/transformers/")


def test_what_no_host_had_was_downloaded_once_and_copied(deployed_stack, first):
    first_host, two = deployed_stack.hosts
    for service, least in LEAST.items():
        fetched_bytes = Counter()
        for request in deployed_stack.requests(service):
            is_counted = service != "web" or request.path.startswith(ENGINE)
            if is_counted and request.method != "HEAD":
                fetched_bytes[request.client] += request.body_bytes
        assert fetched_bytes[first_host.address] > least, service
        assert fetched_bytes[two.address] == 0, service
    assert re.search(r"\[spark2\] engine, vllm: 4\d\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] weights: [4-9]\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] image \S+: 2\d\.\d MB copied from spark1", first.output)
    assert hashes(first_host) == hashes(two)
    list_command = "docker images --digests --format '{{.Repository}}@{{.Digest}} {{.ID}}' | sort"
    assert first_host.root(list_command) == two.root(list_command) != ""
    nothing_is_left(deployed_stack)


def test_two_freshly_deployed_hosts_have_no_drift(deployed_stack):
    result = deployed_stack.diff()
    assert result.code == 0, result.text
    assert result.out == "No drift: 2 hosts as inventory and record ask and as each other.\n"
