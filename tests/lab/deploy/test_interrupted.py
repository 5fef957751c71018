"""A run that is cut off anywhere: the next one finishes the job, and nothing half-done is used."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from stack import Host, Stack, until

from lockstep.onhost.records.deploys import SILENCE_S

WEIGHTS_JOB = "lockstep-job-weights.service"
FETCH = "Weights | Fetch and verify weights"
LOCK = "/run/lockstep/deploy.lock"
QWEN = "models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
QWEN_FOLDER = f"/data/models/huggingface/hub/{QWEN}"
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SHARDS = r"PrismaQuant.*\.safetensors"
SLOW = {"match": SHARDS, "rate": 500_000}


@pytest.fixture
def mended(deployed: Stack) -> Iterator[Stack]:
    """A lab whose second host has its cable and its power again afterwards."""
    yield deployed
    deployed.lab("mend", deployed.two.name)
    deployed.lab("cycle", deployed.two.name, "--on")


def test_a_download_goes_on_without_its_deploy_is_attached_to_and_resumes_where_it_was_killed(
    deployed: Stack,
) -> None:
    one = deployed.one
    # Deployed alone, it has nobody to copy from.
    alone = ("-y", "--limit", one.name)
    one.root(f"rm -rf {QWEN_FOLDER}")
    deployed.plant("hub", SLOW)
    since = now(one)
    killed = deployed.start(*alone)
    until(lambda: partial_bytes(one) > 1_000_000, "spark1 has a part of a shard")
    # Held still, so that the next run is sure to meet it.
    one.root(f"systemctl freeze {WEIGHTS_JOB}")
    killed.kill()
    assert running(one, WEIGHTS_JOB)
    again = deployed.start(*alone)
    again.says(r"\[spark1\].*job weights: is running already, following it")
    one.root(f"systemctl thaw {WEIGHTS_JOB}")
    one.root(f"systemctl kill -s KILL {WEIGHTS_JOB}")
    assert failure(again.end().output) == f"FAILED  spark1: {FETCH}"
    assert starts(one, WEIGHTS_JOB, since) == 1
    had = partial_bytes(one)
    assert whole_shards(one) == []
    deployed.plant("hub")
    asked_before = len(list(deployed.requests("hub")))
    done = deployed.good_deploy(*alone)
    assert FETCH in done.changed
    assert len(whole_shards(one)) == 2
    fetched = [
        seen
        for seen in list(deployed.requests("hub"))[asked_before:]
        if re.search(SHARDS, seen.path) and seen.method == "GET"
    ]
    sizes = sum(size for _, size in whole_shards(one))
    # 206: each went on where it had ended.
    assert {seen.status for seen in fetched} == {206}
    assert sum(seen.sent for seen in fetched) == sizes - had


def test_a_restart_that_a_killed_run_owed_is_made_by_the_next(deployed: Stack) -> None:
    """It follows from what runs, not from what this run changed.

    The unit of before comes back with the deploys of the next test.
    """
    two = deployed.two
    alone = ("-y", "--limit", two.name)
    assert two.switch("qwen").code == 0
    assert length(two) == "262144"
    changed = deployed.inventory(
        "shorter", targets={"qwen": {"overrides": {"max_model_len": 131072}}}
    )
    killed = deployed.start(*alone, inventory=changed)
    killed.kill_at(r"Starting operation: Services \| Restart hot models")
    deployed.good_deploy(*alone, inventory=changed)
    assert two.active() == {"vllm-qwen36.service"}
    assert length(two) == "131072"
    two.switch("none")


def test_a_host_that_falls_silent_or_is_off_is_given_up_alone_and_finished_by_the_next_run(
    mended: Stack,
) -> None:
    one, two = mended.hosts
    two.root(f"rm -rf {QWEN_FOLDER}")
    one.root("rm /etc/logrotate.d/lockstep /data/scripts/llm/start-mistral.sh")
    mended.plant("hub", SLOW)
    # It downloads for itself, slowly, what the other host has.
    run = mended.start("-y", inventory=mended.inventory("alone", copying=False))
    until(lambda: partial_bytes(two) > 0, "spark2 fetches")
    mended.lab("cut", two.name)
    done = run.end()
    assert done.code == 1
    assert failure(done.output) == f"FAILED  spark2: {FETCH}"
    assert "Done on: spark1" in done.closing
    assert one.look("test -e /data/scripts/llm/start-mistral.sh").code == 0
    # No end of the connection reaches it.
    until(
        lambda: two.look(f"flock --nonblock {LOCK} true").code == 0,
        "spark2 ends the lock of a deploy of which it hears no more",
        SILENCE_S + 60,
    )
    mended.lab("mend", two.name)
    mended.lab("cycle", two.name, "--off")
    done = mended.deploy()
    assert done.code == 1
    assert failure(done.output) == "FAILED  spark2: connecting over SSH"
    assert "Done on: spark1" in done.closing
    mended.lab("cycle", two.name, "--on")
    assert not running(two, WEIGHTS_JOB)
    mended.plant("hub")
    mended.good_deploy("-y", "--limit", two.name)
    assert len(whole_shards(two)) == 2
    assert two.active() == set()


def running(host: Host, unit: str) -> bool:
    """Whether a job's processes are at work."""
    return host.show(unit, "SubState") == "running"


def now(host: Host) -> str:
    """The host's clock, as journalctl takes it."""
    return "@" + host.root("date +%s").strip()


def starts(host: Host, unit: str, since: str) -> int:
    """How often systemd has started a unit since then."""
    said = host.root(f"journalctl -q --no-pager -o cat --since {since} UNIT={unit} _PID=1")
    return len(re.findall(r"^Started ", said, re.MULTILINE))


def partial_bytes(host: Host) -> int:
    """Bytes of Qwen's weights that are on disk but not yet part of a snapshot."""
    listed = host.root(f"find {QWEN_FOLDER} -name '*.incomplete' -printf '%s\\n' 2>/dev/null; true")
    return sum(map(int, listed.split()))


def whole_shards(host: Host) -> list[tuple[str, int]]:
    """Qwen's shards in its snapshot, with their sizes in bytes."""
    listed = host.root(
        f"find -L {QWEN_FOLDER}/snapshots -name '*.safetensors' -printf '%f %s\\n' 2>/dev/null;"
        " true"
    )
    return [(line.split()[0], int(line.split()[1])) for line in listed.splitlines()]


def length(host: Host) -> str:
    """--max-model-len of the Qwen that runs."""
    argv: list[str] = host.get("http://127.0.0.1:30001/standin/argv")["argv"]
    return argv[argv.index("--max-model-len") + 1]


def failure(output: str) -> str:
    """The line that names the failed host."""
    return next(line for line in output.splitlines() if line.startswith("FAILED"))
