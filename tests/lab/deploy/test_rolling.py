"""A deploy that restarts hot models: one host after another.

It rolls back where the new model fails, or is slower than its minimum.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from earlier_state import EarlierState
from stack import DeployResult, Host, Stack

IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
UNIT = "vllm-qwen36.service"
LOG = "/run/rolling-watch"
BEGUN = "/var/lib/lockstep-deploy/begun-journal.json"
ACCEPTED = "/var/lib/lockstep-deploy/accepted.json"
# A line each time that the answer of the API changes; all hosts have one clock.
WATCH = """
import time, urllib.request
was = ""
while True:
    now = time.time()
    try:
        with urllib.request.urlopen("http://127.0.0.1:30001/health", timeout=2):
            said = "up"
    except OSError:
        said = "down"
    if said != was:
        print(now, said, flush=True)
    was = said
    time.sleep(0.3)
"""
CUT_OFF = "/var/lib/lockstep-deploy/cut-off.json"
OPERATION = "Services | Restart hot models, one host at a time"


#: Host → times in which its API did not answer.
Outages = dict[str, list[tuple[float, float]]]


@contextmanager
def outage_watch(stack: Stack) -> Iterator[Outages]:
    """The times without an answer of each host's API, known at the end of the block."""
    host_outages: Outages = {}
    for host in stack.hosts:
        run = "systemd-run --quiet --collect --unit=rolling-watch"
        run += f" --property=StandardOutput=append:{LOG} python3 -c {shlex.quote(WATCH)}"
        host.root(f"rm -f {LOG}; {run}")
    try:
        yield host_outages
    finally:
        for host in stack.hosts:
            host.root("systemctl stop rolling-watch")
            host_outages[host.name] = outages(host.root(f"cat {LOG}; rm {LOG}"))


def outages(log: str) -> list[tuple[float, float]]:
    lines = [line.split() for line in log.splitlines()]
    ends = [(float(when), word) for when, word in lines] + [(float("inf"), "up")]
    return [(began, end) for (began, word), (end, _) in pairwise(ends) if word == "down"]


def overlap(host_outages: Outages) -> list[object]:
    """Pairs of outages on two hosts that have a moment in common."""
    first_outages, two = host_outages.values()
    return [(a, b) for a in first_outages for b in two if a[0] < b[1] and b[0] < a[1]]


def host_hash(host: Host) -> str:
    """Hash of every unit, launcher and configuration, where `current` leads, and what runs."""
    return host.root(
        "find /etc/systemd/system /data/scripts /etc/lockstep/models.json"
        " /etc/lockstep/served-weights.json -type f -exec sha256sum {} + | sort;"
        " readlink /opt/lockstep/engines/current;"
        f" systemctl show -p MainPID -p ActiveEnterTimestampMonotonic {UNIT}"
    )


def version(host: Host) -> str:
    """The version that the hot engine gives itself."""
    return str(host.get("http://127.0.0.1:30001/version")["version"])


@pytest.fixture(scope="module")
def newer(stack: Stack) -> Path:
    """An inventory with another image of qwen."""
    return stack.inventory("newer", models={"qwen": {"image": f"{IMAGE}:2026110101"}})


@pytest.fixture(scope="module")
def hot(stack: Stack, first: object) -> Iterator[Stack]:
    """Make qwen hot on both hosts; undone afterwards."""
    for host in stack.hosts:
        answer = host.switch("qwen")
        assert answer.code == 0, answer.text
    yield stack
    for host in stack.hosts:
        host.switch("none")
        host.root(f"rm -f {ACCEPTED}")
    stack.good_deploy()


@pytest.fixture(scope="module")
def rolled_deploy(hot: Stack, newer: Path) -> tuple[DeployResult, Outages]:
    """The deploy of the newer image, and the times without an answer of the hosts' APIs."""
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    with outage_watch(hot) as host_outages:
        result = hot.good_deploy(inventory=newer)
    return result, host_outages


def test_one_host_serves_while_the_other_gets_the_new_image(
    hot: Stack, rolled_deploy: tuple[DeployResult, Outages]
) -> None:
    result, host_outages = rolled_deploy
    assert OPERATION in result.changed_operations
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    assert [len(times) for times in host_outages.values()] == [1, 1]
    assert overlap(host_outages) == []
    assert host_outages["spark1"][0][1] <= host_outages["spark2"][0][0]


def test_an_image_that_is_slower_is_taken_back(hot: Stack, rolled_deploy: object) -> None:
    slow = {"qwen": {"image": f"{IMAGE}:slow", "minimum": {"not_below": "60 %"}}}
    was = version(hot.spark1)
    units = hot.spark1.root("sha256sum /etc/systemd/system/*.service")
    # How a peer is spared: the next test.
    result = hot.deploy("-y", "--limit", "spark1", inventory=hot.inventory("slow", models=slow))
    assert result.code == 1
    assert hot.spark1.root("sha256sum /etc/systemd/system/*.service") == units
    assert version(hot.spark1) == was
    baseline = json.loads(hot.spark1.root(f"cat {ACCEPTED}"))
    assert baseline["qwen"]["decode_tok_s"] > 50, "what there was before the deploy"
    log = hot.spark1.root("cat /var/log/lockstep/jobs/rollout.log")
    assert "below 60% of the accepted" in log
    assert "the gate refused it; returning to what there was" in log
    assert "qwen is hot again, as it was before this deploy" in " ".join(result.closing.split())
    assert (hot.spark1.status()["hot"], hot.spark1.status()["problems"]) == ("qwen", [])


def test_an_image_that_never_serves_stops_at_the_first_host_which_gets_the_old_one_back(
    hot: Stack, rolled_deploy: object, newer: Path
) -> None:
    earlier_hash = host_hash(hot.two)
    units = hot.spark1.root("sha256sum /etc/systemd/system/*.service")
    target_path = hot.inventory("broken", models={"qwen": {"image": f"{IMAGE}:broken"}})
    with outage_watch(hot) as host_outages:
        result = hot.deploy(inventory=target_path)
    assert result.code == 1
    assert host_hash(hot.two) == earlier_hash
    assert host_outages["spark2"] == []
    assert hot.spark1.root("sha256sum /etc/systemd/system/*.service") == units
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
    closing = " ".join(result.closing.split())
    assert f"FAILED spark1: {OPERATION}" in closing
    assert "qwen is hot again, as it was before this deploy" in closing
    assert "Held back: spark2, where vllm-qwen36 runs on" in closing
    # What is on the hosts is what the inventory before asked for: nothing is left to do but to say
    # what to fetch, that more has been resolved since, and that the failure is over.
    assert hot.spark1.show("lockstep-job-rollout.service", "ActiveState") == "failed"
    assert hot.good_deploy(inventory=newer).changed_operations <= {
        "Base | Write folders, programs and settings",
        "Services | Note the generation that begins",
        "Verify | Record this generation",
        "Services | Reload systemd, restart what is outdated",
        "Sharing | End the copying between Sparks",
    }
    for host in hot.hosts:
        assert host.show("lockstep-peer.service", "ActiveState") == "inactive"
    assert hot.spark1.root("systemctl list-units --failed --no-legend --plain 'lockstep-*'") == ""


def test_an_all_or_none_deploy_that_is_killed_is_undone_by_the_hosts_and_then_fetches_nothing(
    hot: Stack, rolled_deploy: object
) -> None:
    """Every stage's files come back: the gateway's and the kernel's settings, our own programs."""
    program = "/usr/local/lib/lockstep/lockstep/onhost/core/clock.py"
    for host in hot.hosts:
        host.root(f"echo '# of an earlier version' >> {program}")
    earlier_states = [EarlierState.of(host) for host in hot.hosts]
    request_count = len(list(hot.requests("registry")))
    settings = {"gateway": {"keepalive_s": 14}, "sysctls": {"vm.swappiness": "11"}}
    target_path = hot.inventory("all", rollout="all", **settings)
    killed_deploy = hot.start("-y", inventory=target_path)
    killed_deploy.says(r"Starting operation: Services \| Restart hot models")
    changed_counts = [len(state.differences()) for state in earlier_states]
    killed_deploy.says(r"\[spark1\].*qwen is hot with what was deployed")
    killed_deploy.kill()
    assert all(changed_counts)
    for state in earlier_states:
        state.host.await_end_of_deploy()
        assert state.differences() == []
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
        assert host.look(f"test -e {BEGUN}").code == 1
    result = hot.good_deploy("-y", inventory=target_path)
    message = "cut off; this host returned to what it was before"
    # The other host's turn may have begun before the kill; then it has returned, too.
    returned_hosts = re.findall(
        rf"\[(\w+)\] the deploy before did not end well: .*{message}", result.output
    )
    assert "spark1" in returned_hosts
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    # The next deploy has nothing to say of it.
    assert [host.look(f"test -e {CUT_OFF}").code for host in hot.hosts] == [1, 1]
    assert len(list(hot.requests("registry"))) == request_count


def test_gc_frees_the_images_of_deploys_that_failed_and_keeps_those_of_two_generations(
    hot: Stack, rolled_deploy: object
) -> None:
    # An image that came after the newest record may be of a deploy under way, and would stay: here
    # the deploy before has written one.
    running, earlier_images = hot.spark1.show(UNIT, "InvocationID"), images(hot.spark1)
    answer = hot.lockstep("gc", "--yes", "--limit", "spark1")
    assert answer.code == 0, answer.text
    # Tests before may have left more that nobody needs.
    kept_images = [
        name
        for name in earlier_images & images(hot.spark1)
        if name.partition("@")[0].endswith(IMAGE)
    ]
    freed_images = [
        name
        for name in earlier_images - images(hot.spark1)
        if name.partition("@")[0].endswith(IMAGE)
    ]
    assert len(freed_images) == 2, "the slower image, and the one that never served"
    assert len(kept_images) == 2, "that of the generation now, and of the one before"
    assert hot.spark1.show(UNIT, "InvocationID") == running


def images(host: Host) -> set[str]:
    """Every image of a host, by digest."""
    output = host.root("docker images --digests --no-trunc --format '{{.Repository}}@{{.Digest}}'")
    return set(output.split())
