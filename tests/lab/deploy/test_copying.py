"""Hosts that copy from each other, when one of them dies or gives wrong bytes.

That what no host has is downloaded once: test_same_hosts.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from copies import MODELS, address, hashes, nothing_is_left
from stack import Host, Stack, forget_leases, until

QWEN = f"{MODELS}/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SLOW = {"match": r"PrismaQuant.*\.safetensors", "rate": 500_000}


@pytest.fixture(scope="module", autouse=True)
def no_leases(stack: Stack, first: object) -> None:
    """Tests before these may have killed deploys, or had deploys and engines that were to fail."""
    for host in stack.hosts:
        forget_leases(host)
        host.root("systemctl reset-failed")


def test_a_host_whose_peer_dies_goes_on_by_itself(deployed: Stack) -> None:
    one, two = deployed.hosts
    for host in deployed.hosts:
        host.root(f"rm -rf {QWEN}")
    deployed.plant("hub", SLOW)
    run = deployed.start()
    try:
        until(lambda: re.search(r"\[spark2\].*waiting for spark1", run.output), "spark2 waits")
        # As if its power were cut, and quicker: what it fetched and what it gave are gone at once.
        one.root("systemctl kill -s KILL lockstep-job-weights.service lockstep-peer.service")
        until(lambda: partial(two), "spark2 downloads by itself")
    finally:
        deployed.plant("hub")
    done = run.end()
    assert done.code == 1
    assert "FAILED  spark1: Weights | Fetch and verify weights" in done.closing
    assert "Done on: spark2" in done.closing
    # And now the other way round.
    before = sent(deployed, "hub")
    again = deployed.good_deploy()
    assert re.search(r"\[spark1\] weights: \S+ MB copied from spark2", again.output)
    assert sent(deployed, "hub") == before
    assert hashes(one) == hashes(two)
    nothing_is_left(deployed)


def test_wrong_bytes_of_a_peer_are_refused_and_fetched_elsewhere(deployed: Stack) -> None:
    one, two = deployed.hosts
    shard = one.root(f"readlink -f {QWEN}/snapshots/*/*00001-of*.safetensors").strip()
    two.root(f"rm -rf {QWEN}")
    # The same size and time: its own host believes it.
    one.root(
        f"cp -p {shard} {shard}.right && printf XX | dd of={shard} bs=1 seek=999 conv=notrunc"
        f" 2>&1 && touch -r {shard}.right {shard}"
    )
    before = sent(deployed, "hub")
    try:
        done = deployed.good_deploy()
    finally:
        one.root(f"mv {shard}.right {shard}")
    name = shard.rpartition("/")[2]
    assert f"{name[:12]} from spark1 is not what its hash says; not used" in done.output
    size = int(one.root(f"stat -c %s {shard}"))
    # That file from the hub, everything else from the peer.
    assert (sent(deployed, "hub") - before) == Counter({address(two): size})
    body = two.root(f"sha256sum {shard}").split()[0]
    assert body == name
    assert deployed.good_deploy().changed == set()


def sent(deployed: Stack, service: str) -> Counter[str]:
    """Bytes that a server of the lab has sent so far, by address of the client."""
    found: Counter[str] = Counter()
    for request in deployed.requests(service):
        if request.method != "HEAD":
            found[request.client] += request.sent
    return found


def partial(host: Host) -> bool:
    """Whether an unfinished download has grown on the host."""
    return bool(host.root(f"find {QWEN} -name '*.incomplete' -size +100k 2>/dev/null; true"))
