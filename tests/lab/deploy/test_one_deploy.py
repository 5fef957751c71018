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
from lockstep.onhost.records.deploys import SILENCE_S

KILLS = int(os.environ.get("LOCKSTEP_TEST_KILLS", "2"))
LOCK = "/run/lockstep/deploy.lock"


def free(host: Host) -> bool:
    """Whether nobody has the lock."""
    return host.look(f"flock --nonblock {LOCK} true").code == 0


def held(host: Host) -> bool:
    return not free(host)


@pytest.fixture
def deploying(deployed: Stack) -> Deploy:
    """A deploy that has the lock of both hosts and is stopped there."""
    for host in deployed.hosts:
        host.root("rm -f /data/scripts/llm/switch.sh")
    deploy = deployed.start()
    for host in deployed.hosts:
        until(lambda host=host: held(host), f"{host.name}: the deploy has the lock")
    os.kill(deploy.pid, signal.SIGSTOP)
    return deploy


def test_a_second_deploy_says_who_works_and_touches_nothing_or_waits_where_it_is_told_to(
    deployed: Stack, deploying: Deploy
) -> None:
    waiting = deployed.start("-y", **{WAIT: "600"})
    other = deployed.inventory("other", operators=("spark",))
    done = deployed.deploy(inventory=other)
    assert done.code == 1, done.output[-3000:]
    said = " ".join(done.output.split())
    assert "another deploy is under way: spark1: " in said and ": deploy of lab, since " in said
    assert "Nothing was touched on any host." in said and "Traceback" not in said
    waiting.says(r"waiting for .* deploy of lab, since ")
    os.kill(deploying.pid, signal.SIGCONT)
    assert deploying.end().code == 0
    done = waiting.end()
    assert done.code == 0 and done.changed == set(), done.output[-3000:]


def test_a_killed_deploy_leaves_no_lock(deployed: Stack) -> None:
    chance = random.Random(19)
    for kill in range(KILLS):
        deploy = deployed.start()
        time.sleep(chance.uniform(0.5, 12.0))
        deploy.kill()
        for host in deployed.hosts:
            until(lambda host=host: free(host), f"{host.name}: the lock after kill {kill}")
    assert deployed.good_deploy().code == 0


def test_one_that_falls_silent_loses_its_lock(deployed: Stack, deploying: Deploy) -> None:
    for host in deployed.hosts:
        until(lambda host=host: free(host), f"{host.name}: the lock", SILENCE_S + 60)
    deploying.kill()
    deployed.good_deploy()


def test_the_log_has_deploys_and_switches_of_all_hosts_in_the_order_of_time(
    deployed: Stack,
) -> None:
    assert deployed.one.switch("qwen").code == 0
    assert deployed.one.switch("none").code == 0
    answer = deployed.lockstep("log", "--json")
    assert answer.code == 0, answer.text
    lines = json.loads(answer.out)["lines"]
    assert [each["at"] for each in lines] == sorted(each["at"] for each in lines)
    for name in ("spark1", "spark2"):
        own = [each["line"] for each in lines if each["host"] == name]
        assert any(line.endswith(": deploy of lab: done") for line in own)
        assert any(": deploy of lab: changed " in line for line in own)
    assert [each["line"].partition(": ")[2][:14] for each in lines[-2:]] == [
        *("switch to qwen", "switch to none"),
    ]
    shown = deployed.lockstep("log").out
    assert "spark1  spark: switch to none: " in shown
    assert ": deploy of lab: done" in shown and ": changed " not in shown
