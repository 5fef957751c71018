"""A deploy that restarts hot models: one host after another.

It goes back where the new one fails, or is slower than its floor.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from stack import Host, Stack, until

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
    time.sleep(0.1)
"""
OPERATION = "Services | Restart hot models, one host at a time"
# Mistral's fallback is of qwen's first image, which would be in use in every generation.
ALONE = {"mistral": {"fallback": None}}


@contextmanager
def watched(stack: Stack) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """Host → times in which its API did not answer, known at the end of the block."""
    found: dict[str, list[tuple[float, float]]] = {}
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


def overlap(found: Mapping[str, list[tuple[float, float]]]) -> list[object]:
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
def inventories(stack: Stack) -> dict[str, Path]:
    newer = {"image": f"{IMAGE}:2026110101"}
    return {
        "newer": stack.inventory("newer", targets={"qwen": newer, **ALONE}),
        "broken": stack.inventory(
            "broken", targets={"qwen": {"image": f"{IMAGE}:broken"}, **ALONE}
        ),
        "sglang": stack.inventory(
            "sglang",
            targets={
                "qwen": newer,
                "mistral": {"image": "docker.io/lmsysorg/sglang:v0.5.22", **ALONE["mistral"]},
            },
        ),
    }


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


def test_one_host_serves_while_the_other_gets_the_new_image(
    hot: Stack, inventories: dict[str, Path]
) -> None:
    seen = hot.deploy("--dry", inventory=inventories["newer"])
    told, _, note = seen.closing.partition("Note: ")
    assert told.strip().splitlines()[-2:] == [f"1. spark1: {UNIT}", f"2. spark2: {UNIT}"]
    assert "has new entries" in " ".join(note.split())
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    with watched(hot) as found:
        done = hot.good_deploy(inventory=inventories["newer"])
    assert OPERATION in done.changed
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    assert [len(times) for times in found.values()] == [1, 1]
    assert overlap(found) == []
    assert found["spark1"][0][1] <= found["spark2"][0][0]


def test_an_image_that_never_serves_stops_at_the_first_host_which_gets_the_old_one_back(
    hot: Stack, inventories: dict[str, Path]
) -> None:
    hot.good_deploy(inventory=inventories["newer"])
    before = everything(hot.two)
    units = hot.one.root("sha256sum /etc/systemd/system/*.service")
    with watched(hot) as found:
        done = hot.deploy(inventory=inventories["broken"])
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
    assert hot.good_deploy(inventory=inventories["newer"]).changed <= {
        "Base | Write folders, programs and settings",
        "Services | Note the generation that begins",
        "Verify | Record this generation",
        "Services | Reload systemd, restart what is outdated",
        "Sharing | End the copying between Sparks",
    }
    for host in hot.hosts:
        assert host.show("lockstep-peer.service", "ActiveState") == "inactive"
    assert hot.one.root("systemctl list-units --failed --no-legend --plain 'lockstep-*'") == ""


def test_a_deploy_to_all_or_none_that_is_killed_is_taken_back_by_the_hosts_themselves(
    hot: Stack,
) -> None:
    hot.good_deploy()
    was = [files(host) for host in hot.hosts]
    wanted = hot.inventory("all", targets={"qwen": {"image": f"{IMAGE}:2026110101"}}, rollout="all")
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
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    assert "did not end well" not in hot.good_deploy(inventory=wanted).output


def test_gc_frees_what_two_generations_do_not_need_and_returning_fetches_nothing(
    hot: Stack, inventories: dict[str, Path]
) -> None:
    hot.good_deploy(inventory=inventories["newer"])
    running = [host.show(UNIT, "InvocationID") for host in hot.hosts]
    done = hot.good_deploy(inventory=inventories["sglang"])
    # No hot model was concerned: nothing was restarted, and no host waited for another.
    assert OPERATION not in done.changed
    assert [host.show(UNIT, "InvocationID") for host in hot.hosts] == running
    had = [images(host) for host in hot.hosts]
    dry = hot.lockstep("gc", "--dry")
    assert dry.code == 0, dry.text
    assert [images(host) for host in hot.hosts] == had
    freed = hot.lockstep("gc", "--yes")
    assert freed.code == 0, freed.text
    for host, before in zip(hot.hosts, had, strict=True):
        # Tests before may have left more that nobody needs.
        gone = [name for name in before - images(host) if name.partition("@")[0].endswith(IMAGE)]
        # The first image, and the one that never served.
        assert len(gone) == 2
        assert f"{host.name}: nothing to remove" in hot.lockstep("gc", "--dry").out
    back = hot.good_deploy(inventory=inventories["newer"])
    assert not {name for name in back.changed if name.startswith(("Images", "Weights"))}
    assert [host.show(UNIT, "InvocationID") for host in hot.hosts] == running


def test_an_image_that_is_slower_is_taken_back_and_its_twin_is_never_touched(hot: Stack) -> None:
    slow = {"qwen": {"image": f"{IMAGE}:slow", "floor": {"not_below": "60 %"}}, **ALONE}
    was = version(hot.one)
    before = everything(hot.two)
    units = hot.one.root("sha256sum /etc/systemd/system/*.service")
    with watched(hot) as found:
        done = hot.deploy(inventory=hot.inventory("slow", targets=slow))
    assert done.code == 1
    assert everything(hot.two) == before
    assert found["spark2"] == []
    assert hot.one.root("sha256sum /etc/systemd/system/*.service") == units
    assert version(hot.one) == was
    accepted = json.loads(hot.one.root(f"cat {ACCEPTED}"))
    assert accepted["qwen"]["decode_tok_s"] > 50, "what there was before the deploy"
    log = hot.one.root("cat /var/log/lockstep/jobs/rollout.log")
    assert "below 60% of the accepted" in log
    assert "the gate refused it; returning to what there was" in log
    assert "qwen is hot again, as it was before this deploy" in " ".join(done.closing.split())
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])


def images(host: Host) -> set[str]:
    """Every image of a host, by digest."""
    listed = host.root("docker images --digests --no-trunc --format '{{.Repository}}@{{.Digest}}'")
    return set(listed.split())
