"""A deploy that restarts hot models: one host after another.

It goes back where the new one fails, or is slower than its floor.
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
from stack import Deployed, Host, Stack, until

IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
UNIT = "vllm-qwen36.service"
LOG = "/run/rolling-watch"
BEFORE = "/var/lib/lockstep-deploy/before.json"
LOCK = "/run/lockstep/deploy.lock"
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
def watched(stack: Stack) -> Iterator[Outages]:
    """When each host's API did not answer, known at the end of the block."""
    found: Outages = {}
    for host in stack.hosts:
        run = "systemd-run --quiet --collect --unit=rolling-watch"
        run += f" --property=StandardOutput=append:{LOG} python3 -c {shlex.quote(WATCH)}"
        host.root(f"rm -f {LOG}; {run}")
    try:
        yield found
    finally:
        for host in stack.hosts:
            host.root("systemctl stop rolling-watch")
            found[host.name] = outages(host.root(f"cat {LOG}; rm {LOG}"))


def outages(log: str) -> list[tuple[float, float]]:
    lines = [line.split() for line in log.splitlines()]
    ends = [(float(when), word) for when, word in lines] + [(float("inf"), "up")]
    return [(began, end) for (began, word), (end, _) in pairwise(ends) if word == "down"]


def overlap(found: Outages) -> list[object]:
    """Pairs of outages on two hosts that have a moment in common."""
    one, two = found.values()
    return [(a, b) for a in one for b in two if a[0] < b[1] and b[0] < a[1]]


def everything(host: Host) -> str:
    """Hash of every unit, launcher and configuration, where `current` leads, and what runs."""
    return host.root(
        "find /etc/systemd/system /data/scripts /etc/lockstep/targets.json"
        " /etc/lockstep/served-weights.json -type f -exec sha256sum {} + | sort;"
        " readlink /opt/lockstep/engines/current;"
        f" systemctl show -p MainPID -p ActiveEnterTimestampMonotonic {UNIT}"
    )


def files(host: Host) -> str:
    """Hash of every unit, launcher and configuration, where `current` leads, and what serves."""
    return everything(host).partition("MainPID")[0] + version(host)


def version(host: Host) -> str:
    """What the hot engine says it is."""
    return str(host.get("http://127.0.0.1:30001/version")["version"])


@pytest.fixture(scope="module")
def newer(stack: Stack) -> Path:
    """An inventory with another image of qwen."""
    return stack.inventory("newer", targets={"qwen": {"image": f"{IMAGE}:2026110101"}})


@pytest.fixture(scope="module")
def hot(stack: Stack, first: object) -> Iterator[Stack]:
    """Both hosts serve qwen; as they were afterwards."""
    for host in stack.hosts:
        answer = host.switch("qwen")
        assert answer.code == 0, answer.text
    yield stack
    for host in stack.hosts:
        host.switch("none")
        host.root(f"rm -f {ACCEPTED}")
    stack.good_deploy()


@pytest.fixture(scope="module")
def rolled(hot: Stack, newer: Path) -> tuple[Deployed, Outages]:
    """The deploy of the newer image, and when the hosts' APIs did not answer meanwhile."""
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    with watched(hot) as found:
        done = hot.good_deploy(inventory=newer)
    return done, found


def test_one_host_serves_while_the_other_gets_the_new_image(
    hot: Stack, rolled: tuple[Deployed, Outages]
) -> None:
    done, found = rolled
    assert OPERATION in done.changed
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    assert [len(times) for times in found.values()] == [1, 1]
    assert overlap(found) == []
    assert found["spark1"][0][1] <= found["spark2"][0][0]


def test_an_image_that_is_slower_is_taken_back(hot: Stack, rolled: object) -> None:
    slow = {"qwen": {"image": f"{IMAGE}:slow", "floor": {"not_below": "60 %"}}}
    was = version(hot.one)
    units = hot.one.root("sha256sum /etc/systemd/system/*.service")
    # How a twin is spared: the next test.
    done = hot.deploy("-y", "--limit", "spark1", inventory=hot.inventory("slow", targets=slow))
    assert done.code == 1
    assert hot.one.root("sha256sum /etc/systemd/system/*.service") == units
    assert version(hot.one) == was
    accepted = json.loads(hot.one.root(f"cat {ACCEPTED}"))
    assert accepted["qwen"]["decode_tok_s"] > 50, "what there was before the deploy"
    log = hot.one.root("cat /var/log/lockstep/jobs/rollout.log")
    assert "below 60% of the accepted" in log
    assert "the gate refused it; returning to what there was" in log
    assert "qwen is hot again, as it was before this deploy" in " ".join(done.closing.split())
    assert (hot.one.status()["hot"], hot.one.status()["problems"]) == ("qwen", [])


def test_an_image_that_never_serves_stops_at_the_first_host_which_gets_the_old_one_back(
    hot: Stack, rolled: object, newer: Path
) -> None:
    before = everything(hot.two)
    units = hot.one.root("sha256sum /etc/systemd/system/*.service")
    broken = hot.inventory("broken", targets={"qwen": {"image": f"{IMAGE}:broken"}})
    with watched(hot) as found:
        done = hot.deploy(inventory=broken)
    assert done.code == 1
    assert everything(hot.two) == before
    assert found["spark2"] == []
    assert hot.one.root("sha256sum /etc/systemd/system/*.service") == units
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
    closing = " ".join(done.closing.split())
    assert f"FAILED spark1: {OPERATION}" in closing
    assert "qwen is hot again, as it was before this deploy" in closing
    assert "Held back: spark2, where vllm-qwen36 runs on" in closing
    # What is on the hosts is what the inventory before asked for: nothing is left to do but to say
    # what to fetch, that more has been resolved since, and that the failure is over.
    assert hot.one.show("lockstep-job-rollout.service", "ActiveState") == "failed"
    assert hot.good_deploy(inventory=newer).changed <= {
        "Base | Write folders, programs and settings",
        "Services | Note the generation that begins",
        "Verify | Record this generation",
        "Services | Reload systemd, restart what is outdated",
        "Sharing | End the copying between Sparks",
    }
    for host in hot.hosts:
        assert host.show("lockstep-peer.service", "ActiveState") == "inactive"
    assert hot.one.root("systemctl list-units --failed --no-legend --plain 'lockstep-*'") == ""


def test_a_way_back_for_all_or_none_that_is_killed_is_undone_by_the_hosts_and_then_fetches_nothing(
    hot: Stack, rolled: object
) -> None:
    was = [files(host) for host in hot.hosts]
    asked = len(list(hot.requests("registry")))
    wanted = hot.inventory("all", rollout="all")
    killed = hot.start("-y", inventory=wanted)
    killed.says(r"\[spark1\].*qwen is hot with what was deployed")
    killed.kill()
    for host in hot.hosts:
        until(
            lambda host=host: host.look(f"flock --nonblock {LOCK} true").code == 0,
            f"{host.name}: it has ended what the deploy began",
            120,
        )
    assert [files(host) for host in hot.hosts] == was
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
        assert host.look(f"test -e {BEFORE}").code == 1
    done = hot.good_deploy("-y", inventory=wanted)
    said = "cut off; this host returned to what it was before"
    assert len(re.findall(rf"the deploy before did not end well: .*{said}", done.output)) == 2
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    # The next deploy has nothing to say of it.
    assert [host.look(f"test -e {CUT_OFF}").code for host in hot.hosts] == [1, 1]
    assert len(list(hot.requests("registry"))) == asked


def test_gc_frees_the_images_of_deploys_that_failed_and_keeps_those_of_two_generations(
    hot: Stack, rolled: object
) -> None:
    # An image that came after the newest record may be of a deploy under way, and would stay: here
    # the deploy before has written one.
    running, had = hot.one.show(UNIT, "InvocationID"), images(hot.one)
    freed = hot.lockstep("gc", "--yes", "--limit", "spark1")
    assert freed.code == 0, freed.text
    # Tests before may have left more that nobody needs.
    kept = [name for name in had & images(hot.one) if name.partition("@")[0].endswith(IMAGE)]
    gone = [name for name in had - images(hot.one) if name.partition("@")[0].endswith(IMAGE)]
    assert len(gone) == 2, "the slower image, and the one that never served"
    assert len(kept) == 2, "that of the generation now, and of the one before"
    assert hot.one.show(UNIT, "InvocationID") == running


def images(host: Host) -> set[str]:
    """Every image of a host, by digest."""
    listed = host.root("docker images --digests --no-trunc --format '{{.Repository}}@{{.Digest}}'")
    return set(listed.split())
