"""A run that is cut off anywhere: the next one finishes the job, and nothing half-done is used."""

import re

import pytest
from stack import Host, until

from lockstep.onhost.records.deploy_lock import SILENCE_S

WEIGHTS_JOB = "lockstep-job-weights.service"
FETCH = "Weights | Fetch and verify weights"
QWEN = "models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
QWEN_FOLDER = f"/data/models/huggingface/hub/{QWEN}"
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SHARDS = r"PrismaQuant.*\.safetensors"
SLOW = {"match": SHARDS, "rate": 500_000}


@pytest.fixture
def mended_stack(deployed_stack):
    """A lab whose second host gets its cable back afterwards."""
    yield deployed_stack
    deployed_stack.lab("mend", deployed_stack.two.name)


def test_a_download_goes_on_without_its_deploy_is_attached_to_and_resumes_where_it_was_killed(
    deployed_stack,
):
    host = deployed_stack.spark1
    # Deployed alone, it has nobody to copy from.
    alone = ("-y", "--limit", host.name)
    host.root(f"rm -rf {QWEN_FOLDER}")
    deployed_stack.plant("hub", SLOW)
    since = host.root("date +%s").strip()
    killed_deploy = deployed_stack.start(*alone)
    until(lambda: partial_bytes(host) > 1_000_000, "spark1 has a part of a shard")
    # Held still, so that the next run is sure to meet it.
    host.root(f"systemctl freeze {WEIGHTS_JOB}")
    killed_deploy.kill()
    assert host.show(WEIGHTS_JOB, "SubState") == "running"
    again = deployed_stack.start(*alone)
    again.says(r"\[spark1\].*job weights: is running already, following it")
    host.root(f"systemctl thaw {WEIGHTS_JOB}")
    host.root(f"systemctl kill -s KILL {WEIGHTS_JOB}")
    assert f"\nFAILED  spark1: {FETCH}\n" in again.end().output
    journal = f"journalctl -q --no-pager -o cat --since @{since} UNIT={WEIGHTS_JOB} _PID=1"
    assert len(re.findall(r"^Started ", host.root(journal), re.MULTILINE)) == 1
    earlier_bytes = partial_bytes(host)
    assert whole_shards(host) == []
    deployed_stack.plant("hub")
    asked_before = len(list(deployed_stack.requests("hub")))
    result = deployed_stack.good_deploy(*alone)
    assert FETCH in result.changed_operations
    assert len(whole_shards(host)) == 2
    requests = [
        request
        for request in list(deployed_stack.requests("hub"))[asked_before:]
        if re.search(SHARDS, request.path) and request.method == "GET"
    ]
    sizes = sum(size for _, size in whole_shards(host))
    # 206: each went on where it had ended.
    assert {request.status for request in requests} == {206}
    assert sum(request.body_bytes for request in requests) == sizes - earlier_bytes


def test_a_host_that_falls_silent_is_given_up_alone_and_finished_by_the_next_run(mended_stack):
    first_host, two = mended_stack.hosts
    two.root(f"rm -rf {QWEN_FOLDER}")
    first_host.root("rm /etc/logrotate.d/lockstep /data/scripts/llm/start-mistral.sh")
    mended_stack.plant("hub", SLOW)
    # It downloads for itself, slowly, what the other host has.
    run = mended_stack.start("-y", inventory=mended_stack.inventory("alone", copying=False))
    until(lambda: partial_bytes(two) > 0, "spark2 fetches")
    mended_stack.lab("cut", two.name)
    result = run.end()
    assert result.code == 1
    assert f"\nFAILED  spark2: {FETCH}\n" in result.output
    assert "Done on: spark1" in result.closing
    assert first_host.look("test -e /data/scripts/llm/start-mistral.sh").code == 0
    # No end of the connection reaches it.
    two.await_end_of_deploy(SILENCE_S + 60)
    mended_stack.lab("mend", two.name)
    # It would go on as slowly as it began.
    two.root(f"systemctl stop {WEIGHTS_JOB} 2>/dev/null; true")
    mended_stack.plant("hub")
    # Of both: copying opens a port in their firewalls.
    mended_stack.good_deploy("-y")
    assert len(whole_shards(two)) == 2
    assert two.active() == set()


def partial_bytes(host: Host) -> int:
    """Bytes of Qwen's weights that are on disk but not yet part of a snapshot."""
    sizes = host.root(f"find {QWEN_FOLDER} -name '*.incomplete' -printf '%s\\n' 2>/dev/null; true")
    return sum(map(int, sizes.split()))


def whole_shards(host: Host) -> list[tuple[str, int]]:
    """Qwen's shards in its snapshot, with their sizes in bytes."""
    listing = host.root(
        f"find -L {QWEN_FOLDER}/snapshots -name '*.safetensors' -printf '%f %s\\n' 2>/dev/null;"
        " true"
    )
    return [(line.split()[0], int(line.split()[1])) for line in listing.splitlines()]
