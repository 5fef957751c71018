"""Downloaded once: what one host has, the other takes from it, and nothing is left behind.

Both hosts wiped whole: `python tests/lab/rebuilding.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest
from stack import Host, Stack, forget_leases, until

MODELS = "/data/models/huggingface"
QWEN = f"{MODELS}/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
IMAGES = "/var/cache/lockstep/layers"
ENGINES = "/opt/lockstep/engines"
#: All that a deploy downloads from, but for apt, uv and the hub client.
SERVERS = ("hub", "registry", "web", "git")
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SLOW = {"match": r"PrismaQuant.*\.safetensors", "rate": 500_000}


@pytest.fixture(scope="module", autouse=True)
def no_leases(stack: Stack, first: object) -> None:
    """Tests before these may have killed deploys, or had deploys and engines that were to fail."""
    for host in stack.hosts:
        forget_leases(host)
        host.root("systemctl reset-failed")


def test_what_no_host_has_is_downloaded_once_and_copied(deployed: Stack) -> None:
    one, two = deployed.hosts
    for host in deployed.hosts:
        host.root(f"rm -rf {MODELS}/hub {MODELS}/lockstep-verified {MODELS}/lockstep-merged")
        host.root("systemctl stop open-webui && docker rmi -f $(docker images -aq --no-trunc)")
        host.root(f"rm -rf {IMAGES} {ENGINES}/*")
        # Caches of engines that only one of them has had hot.
        host.root("docker volume ls -q | grep cache | xargs -r docker volume rm")
    before = {service: sent(deployed, service) for service in SERVERS}
    done = deployed.good_deploy()
    fetched = {service: sent(deployed, service) - before[service] for service in SERVERS}
    assert {name: found[address(two)] for name, found in fetched.items()} == dict.fromkeys(
        SERVERS, 0
    )
    assert fetched["hub"][address(one)] > 50_000_000
    assert fetched["registry"][address(one)] > 20_000_000
    assert fetched["web"][address(one)] > 500_000_000
    assert fetched["git"][address(one)] > 9_000_000
    assert re.search(r"\[spark2\] engine, vllm: 4\d\d\.\d MB copied from spark1", done.output)
    assert re.search(r"\[spark2\] weights: [5-9]\d\.\d MB copied from spark1", done.output)
    assert re.search(r"\[spark2\] image \S+: 20\.\d MB copied from spark1", done.output)
    assert hashes(one) == hashes(two)
    compared = deployed.diff()
    assert compared.returncode == 0, compared.stdout
    listed = "docker images --digests --format '{{.Repository}}@{{.Digest}} {{.ID}}' | sort"
    assert one.root(listed) == two.root(listed) != ""
    nothing_is_left(deployed)
    assert deployed.good_deploy().changed == set()


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


def address(host: Host) -> str:
    """The host's address in the lab's network."""
    return host.root("hostname -I").split()[0]


def hashes(host: Host) -> str:
    """One hash over the names and contents of everything in the hub cache."""
    listed = host.root(
        f"cd {MODELS}/hub && find . -type f -path '*/blobs/*' -exec sha256sum {{}} +"
    )
    return hashlib.sha256("\n".join(sorted(listed.splitlines())).encode()).hexdigest()


def partial(host: Host) -> bool:
    """Whether an unfinished download has grown on the host."""
    return bool(host.root(f"find {QWEN} -name '*.incomplete' -size +100k 2>/dev/null; true"))


def nothing_is_left(deployed: Stack) -> None:
    """No port, no unit and no token of the copying."""
    for host in deployed.hosts:
        assert host.root("ss -Hltn 'sport = :7077'") == ""
        assert host.run("systemctl is-active lockstep-peer.service").out.strip() == "inactive"
        assert host.root("find /run/lockstep/peers -name '*.json'") == ""
