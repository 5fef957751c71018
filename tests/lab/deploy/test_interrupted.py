"""A run that is cut off anywhere: the next one finishes the job, and nothing half-done is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stack import Host, Stack, until

from lockstep.fleet.hosts import WAIT

ENGINES = "/opt/lockstep/engines"
VLLM_JOB = "lockstep-job-engine-vllm.service"
WEIGHTS_JOB = "lockstep-job-weights.service"
QWEN = "models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
QWEN_FOLDER = f"/data/models/huggingface/hub/{QWEN}"
#: Slow enough that a transfer of 24 MB is caught in the middle, on a busy machine too.
SHARDS = r"PrismaQuant.*\.safetensors"
SLOW = {"match": SHARDS, "rate": 500_000}


@pytest.fixture(scope="module")
def alone(stack: Stack, first: object) -> Iterator[Path]:
    """An inventory whose hosts download for themselves, slowly, where the hub is slow."""
    yield stack.inventory("alone", copying=False)
    # The firewall has the port for copies again.
    stack.good_deploy()


@pytest.fixture(autouse=True)
def mended(stack: Stack, first: object) -> Iterator[None]:
    """Whatever a test broke outside the hosts is whole again for the next."""
    yield
    for host in stack.hosts:
        stack.lab("mend", host.name)
    stack.plant("hub")


def test_a_build_goes_on_without_its_deploy_and_is_attached_to(deployed: Stack) -> None:
    one = deployed.one
    # A wiped engine; what is downloaded already only saves the test's time.
    kept = "! -name uv-cache ! -name store"
    one.root(f"find {ENGINES} -mindepth 1 -maxdepth 1 {kept} -exec rm -rf {{}} +")
    since = now(one)
    killed = deployed.start()
    until(lambda: running(one, VLLM_JOB), "spark1 builds vLLM")
    # Held still, so that the next run is sure to meet it.
    one.root(f"systemctl freeze {VLLM_JOB}")
    killed.kill()
    assert running(one, VLLM_JOB)
    # An engine that no check has passed is not in use.
    assert one.look(f"test -e {ENGINES}/current").code == 1
    again = deployed.start()
    again.says(r"\[spark1\].*job engine-vllm: is running already, following it")
    one.root(f"systemctl thaw {VLLM_JOB}")
    done = again.end()
    assert done.code == 0, done.output[-6000:]
    assert json.loads(one.root(f"cat {ENGINES}/current/check.json"))["faults"] == []
    assert starts(one, VLLM_JOB, since) == 1
    assert deployed.good_deploy().changed == set()


def test_a_restart_that_a_killed_run_owed_is_made_by_the_next(deployed: Stack) -> None:
    """It follows from what runs, not from what this run changed."""
    two = deployed.two
    assert two.switch("qwen").code == 0
    assert length(two) == "262144"
    changed = deployed.inventory(
        "shorter", targets={"qwen": {"overrides": {"max_model_len": 131072}}}
    )
    killed = deployed.start("-y", inventory=changed)
    killed.kill_at(r"Starting operation: Services \| Restart hot models")
    deployed.good_deploy("-y", inventory=changed)
    assert two.active() == {"vllm-qwen36.service"}
    assert length(two) == "131072"
    assert deployed.good_deploy("-y", inventory=changed).changed == set()
    # What is hot stays hot, in its new form, when the data go back.
    deployed.good_deploy()
    assert length(two) == "262144"
    two.switch("none")


def test_a_host_that_is_off_does_not_keep_the_other_from_its_deploy(deployed: Stack) -> None:
    one, two = deployed.hosts
    one.root("rm /data/scripts/llm/start-mistral.sh")
    deployed.lab("cycle", two.name, "--off")
    try:
        done = deployed.deploy()
    finally:
        deployed.lab("cycle", two.name, "--on")
    assert done.code == 1
    assert failure(done.output) == "FAILED  spark2: connecting over SSH"
    assert "Done on: spark1" in done.closing
    assert one.look("test -e /data/scripts/llm/start-mistral.sh").code == 0
    assert deployed.good_deploy().changed == set()


def test_weights_resume_after_the_deploy_and_their_job_were_killed(
    deployed: Stack, alone: Path
) -> None:
    one = deployed.one
    one.root(f"rm -rf {QWEN_FOLDER}")
    deployed.plant("hub", SLOW)
    killed = deployed.start(inventory=alone)
    until(lambda: partial_bytes(one) > 1_000_000, "spark1 has a part of a shard")
    killed.kill()
    one.root(f"systemctl kill -s KILL {WEIGHTS_JOB}")
    until(lambda: not running(one, WEIGHTS_JOB), "the job is dead")
    had = partial_bytes(one)
    assert whole_shards(one) == []
    deployed.plant("hub")
    asked_before = len(list(deployed.requests("hub")))
    done = deployed.good_deploy(inventory=alone)
    assert "Weights | Fetch and verify weights" in done.changed
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


def test_a_silent_host_is_given_up_and_after_a_power_cut_finished_by_the_next_run(
    deployed: Stack, alone: Path
) -> None:
    one, two = deployed.hosts
    two.root(f"rm -rf {QWEN_FOLDER}")
    one.root("rm /etc/logrotate.d/lockstep /data/scripts/llm/start-mistral.sh")
    deployed.plant("hub", SLOW)
    run = deployed.start(inventory=alone)
    until(lambda: partial_bytes(two) > 0, "spark2 fetches")
    deployed.lab("cut", two.name)
    done = run.end()
    assert done.code == 1
    assert failure(done.output) == "FAILED  spark2: Weights | Fetch and verify weights"
    assert "Done on: spark1" in done.closing
    assert one.look("test -e /data/scripts/llm/start-mistral.sh").code == 0
    # Its job went on, or does now.
    deployed.lab("mend", two.name)
    deployed.lab("cycle", two.name)
    assert not running(two, WEIGHTS_JOB)
    deployed.plant("hub")
    deployed.good_deploy(inventory=alone)
    assert len(whole_shards(two)) == 2
    assert two.active() == set()
    assert deployed.good_deploy(inventory=alone).changed == set()


def test_two_deploys_at_once_do_no_work_twice(deployed: Stack, alone: Path) -> None:
    one = deployed.one
    one.root(f"rm -rf {QWEN_FOLDER}")
    deployed.plant("hub", SLOW)
    since = now(one)
    with ThreadPoolExecutor() as pool:
        runs = [deployed.start("-y", inventory=alone, **{WAIT: "600"}) for _ in range(2)]
        ends = [pool.submit(run.end) for run in runs]
        for run in runs:
            run.says(r"\[spark1\].*weights .*PrismaQuant|waiting for .* deploy of ")
        deployed.plant("hub")
        done = [end.result() for end in ends]
    assert [each.code for each in done] == [0, 0]
    assert starts(one, WEIGHTS_JOB, since) == 1
    assert len(whole_shards(one)) == 2


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
