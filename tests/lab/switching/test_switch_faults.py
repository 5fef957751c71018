"""Switches with faults thrown in: never two engines, never worse off without a reason.

The long one, on both hosts, is `make soak`. The seed is fixed, so that a failure can be seen again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import soaking
from stack import Host, Stack

# Of four thousand seeds the one with most kinds of faults in so few switches: five.
SEED, SWITCHES = 618, 8
# Only bounds a hang.
LIMIT_S = 1200.0


@pytest.fixture
def quick_to_give_up(deployed: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A lab of one host, whose targets give up after seconds; as it was afterwards."""
    one = ("-y", "--limit", "spark1")
    deployed.good_deploy(*one, inventory=soaking.inventory(deployed))
    with monkeypatch.context() as alone:
        alone.setattr(deployed, "hosts", (deployed.one,))
        yield deployed
    deployed.one.switch("none")
    deployed.good_deploy(*one)


def test_never_two_engines_and_never_worse_off_without_a_reason(quick_to_give_up: Stack) -> None:
    counts = soaking.soak(quick_to_give_up, SEED, SWITCHES, slow=False, limit_s=LIMIT_S)
    print(counts.report())
    assert counts.violations == [], counts.report()
    assert counts.switches >= SWITCHES // 2
    assert len(counts.faults) >= 5
    assert counts.samples >= 10 * counts.rounds


def test_the_watcher_sees_two_engines(one: Host) -> None:
    """Without this, a watcher that sees nothing would find no violation."""
    engine = "import sys, time; sys.argv[1] = 'serve'; time.sleep(60)"
    one.root(
        "mkdir -p /run/two/a /run/two/b; "
        f"for name in a/vllm b/sglang; do echo {engine!r} > /run/two/$name; "
        "systemd-run --quiet --collect --unit=two-$(basename $name) "
        "/usr/bin/python3 /run/two/$name serve /run/two/$name; done"
    )
    counts = soaking.Counts()
    try:
        with soaking.Watcher(one, counts) as watcher:
            soaking.until(lambda: watcher.seen.is_set() and counts.violations, "two engines seen")
    finally:
        one.root("systemctl stop two-vllm two-sglang; rm -r /run/two")
    assert "/run/two/a/vllm" in counts.violations[0] and "b/sglang" in counts.violations[0]


@pytest.fixture
def hung_docker(one: Host) -> Iterator[Host]:
    """A host with qwen hot, in a container, whose Docker then hangs."""
    assert one.switch("qwen").code == 0
    one.root("kill -STOP $(cat /run/docker.pid)")
    yield one
    one.root("kill -CONT $(cat /run/docker.pid)")
    one.switch("none")


def test_while_docker_hangs_two_engines_never_live(hung_docker: Host) -> None:
    one = hung_docker
    refused = one.switch("tiny")
    assert refused.code == 1, refused.text
    said = " ".join(refused.text.split())
    assert "qwen lives in container vllm-qwen36, and Docker does not answer" in said
    assert "nothing was stopped" in said
    assert one.active() == {"vllm-qwen36.service"}

    # It needs no Docker: the container's slice tells who lives, and ends it.
    ended = one.switch("none")
    assert ended.code == 0, ended.text
    slice_of_qwen = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36"
    left = one.root(f"cat $(find {slice_of_qwen}* -name cgroup.procs) /dev/null")
    assert left == "", ended.text
    assert one.show("vllm-qwen36.service", "ActiveState") == "inactive"
