"""One deploy at a time on each host, and the log of who did what.

LOCKSTEP_TEST_KILLS is how many deploys are killed; by hand it was 50.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest
from stack import Deploy, Host, Stack, until

from lockstep.fleet.hosts import WAIT

KILLS = int(os.environ.get("LOCKSTEP_TEST_KILLS", "1"))
LOCK = "/run/lockstep/deploy.lock"
# What one host is enough for.
ONE = ("-y", "--limit", "spark1")


def free(host: Host) -> bool:
    """Whether nobody has the lock."""
    return host.look(f"flock --nonblock {LOCK} true").code == 0


def held(host: Host) -> bool:
    return not free(host)


@pytest.fixture
def deploying(deployed: Stack) -> Deploy:
    """A deploy of spark1 that has its lock and is stopped there."""
    deployed.one.root("rm -f /data/scripts/llm/switch.sh")
    deploy = deployed.start(*ONE)
    until(lambda: held(deployed.one), "the deploy has the lock")
    os.kill(deploy.pid, signal.SIGSTOP)
    return deploy


def test_a_second_deploy_says_who_works_and_touches_nothing_or_waits_where_it_is_told_to(
    deployed: Stack, deploying: Deploy
) -> None:
    waiting = deployed.start(*ONE, **{WAIT: "600"})
    # Of both hosts, of which the second is free.
    other = deployed.inventory("other", operators=("spark",))
    done = deployed.deploy(inventory=other)
    assert done.code == 1, done.output[-3000:]
    said = " ".join(done.output.split())
    assert "another deploy is under way: spark1: " in said and ": deploy of lab, since " in said
    assert "Nothing was touched on any host." in said and "Traceback" not in said
    waiting.says(r"waiting for .* deploy of lab, since ")
    os.kill(deploying.pid, signal.SIGCONT)
    done = deploying.end()
    assert done.code == 0 and done.changed != set(), done.output[-3000:]
    done = waiting.end()
    assert done.code == 0 and done.changed == set(), done.output[-3000:]


def test_a_killed_deploy_leaves_no_lock(deployed: Stack) -> None:
    chance = random.Random(19)
    for kill in range(KILLS):
        deploy = deployed.start(*ONE)
        until(lambda: held(deployed.one), "the deploy has the lock")
        # A random moment of the about 4 s of a deploy that changes nothing.
        time.sleep(chance.uniform(0.0, 3.0))
        deploy.kill()
        until(lambda: free(deployed.one), f"the lock after kill {kill}")
    deployed.good_deploy(*ONE)


def test_the_log_has_deploys_and_switches_of_all_hosts_in_the_order_of_time(
    deployed: Stack,
) -> None:
    for host in deployed.hosts:
        assert host.switch("none").code == 0
    answer = deployed.lockstep("log", "--json")
    assert answer.code == 0, answer.text
    lines = json.loads(answer.out)["lines"]
    assert [each["at"] for each in lines] == sorted(each["at"] for each in lines)
    for name in ("spark1", "spark2"):
        own = [each["line"] for each in lines if each["host"] == name]
        assert any(line.endswith(": deploy of lab: done") for line in own)
        assert any(": deploy of lab: changed " in line for line in own)
    last = [(each["host"], each["line"].partition(": ")[2][:14]) for each in lines[-2:]]
    assert last == [("spark1", "switch to none"), ("spark2", "switch to none")]
