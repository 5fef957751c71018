"""Hosts that copy from each other, when one of them dies or gives wrong bytes.

That what no host has is downloaded once: test_deploy.
"""

import re

import pytest
from copies import MODELS, hashes, nothing_is_left
from stack import Host, forget_leases, until

QWEN = f"{MODELS}/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
MISTRAL = f"{MODELS}/hub/models--mistralai--Mistral-Small-4-119B-2603-NVFP4"
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SLOW = {"match": r"PrismaQuant.*\.safetensors", "rate": 500_000}


@pytest.fixture(scope="module", autouse=True)
def no_leases(stack, first):
    """Remove leases: earlier tests may have killed deploys, or made deploys and engines fail."""
    for host in stack.hosts:
        forget_leases(host)
        host.root("systemctl reset-failed")


def test_a_host_whose_peer_dies_goes_on_by_itself_and_wrong_bytes_of_a_peer_are_refused(
    deployed_stack,
):
    """Qwen, which none has, is fetched first; Mistral then by spark1 from spark2."""
    first_host, two = deployed_stack.hosts
    shard = two.root(f"readlink -f {MISTRAL}/snapshots/*/*00001-of*.safetensors").strip()
    first_host.root(f"rm -rf {QWEN} {MISTRAL}")
    # The same size and time: its own host believes it.
    two.root(
        f"rm -rf {QWEN} && cp -p {shard} {shard}.right"
        f" && printf XX | dd of={shard} bs=1 seek=999 conv=notrunc 2>&1"
        f" && touch -r {shard}.right {shard}"
    )
    request_count = len(list(deployed_stack.requests("hub")))
    deployed_stack.plant("hub", SLOW)
    run = deployed_stack.start()
    try:
        until(lambda: re.search(r"\[spark2\].*waiting for spark1", run.output), "spark2 waits")
        # To the other it is as if its power were cut, and its own deploy goes on.
        first_host.root("systemctl kill -s KILL lockstep-peer.service")
        until(lambda: partial(two), "spark2 downloads by itself")
        deployed_stack.plant("hub")
        result = run.end()
    finally:
        two.root(f"mv {shard}.right {shard}")
    assert result.code == 0, result.output[-8000:]
    name = shard.rpartition("/")[2]
    assert f"{name[:12]} from spark2 is not what its hash says; not used" in result.output
    assert re.search(r"\[spark1\] weights: \S+ MB copied from spark2", result.output)
    # Of Mistral that file came from the hub, everything else from the peer.
    size = int(two.root(f"stat -c %s {shard}"))
    transfers = [
        (request.client, request.body_bytes)
        for request in list(deployed_stack.requests("hub"))[request_count:]
        if "Mistral-Small-4-119B-2603-NVFP4" in request.path
        and request.method == "GET"
        and request.body_bytes
    ]
    assert transfers == [(first_host.address, size)]
    # Tests before this one may have given a host a model that the other one lacks.
    assert hashes(first_host, f"{QWEN} {MISTRAL}") == hashes(two, f"{QWEN} {MISTRAL}")
    nothing_is_left(deployed_stack)


def partial(host: Host) -> bool:
    """Tell whether an unfinished download has grown on the host."""
    return bool(host.root(f"find {QWEN} -name '*.incomplete' -size +100k 2>/dev/null; true"))
