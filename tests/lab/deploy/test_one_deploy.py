"""One deploy at a time on each host, and the log of who did what.

LOCKSTEP_TEST_KILLS is how many deploys are killed; by hand it was 50.
"""

import json
import os
import random
import signal
import time

import pytest
from stack import DEPLOY_LOCK, Host, until

from lockstep.fleet.hosts import WAIT

KILLS = int(os.environ.get("LOCKSTEP_TEST_KILLS", "1"))
# What one host is enough for.
ONE = ("-y", "--limit", "spark1")


def free(host: Host) -> bool:
    """Tell whether nobody has the lock."""
    return host.look(f"flock --nonblock {DEPLOY_LOCK} true").code == 0


@pytest.fixture
def deploying(deployed_stack):
    """A deploy of spark1 that has its lock and is stopped there."""
    deployed_stack.spark1.root("rm -f /data/scripts/llm/switch.sh")
    deploy = deployed_stack.start(*ONE)
    until(lambda: not free(deployed_stack.spark1), "the deploy has the lock")
    os.kill(deploy.pid, signal.SIGSTOP)
    return deploy


def test_a_second_deploy_says_who_works_and_touches_nothing_or_waits_where_it_is_told_to(
    deployed_stack, deploying
):
    waiting = deployed_stack.start(*ONE, **{WAIT: "600"})
    # Of both hosts, of which the second is free.
    target_path = deployed_stack.inventory("other", operators=("spark",))
    result = deployed_stack.deploy(inventory=target_path)
    assert result.code == 1, result.output[-3000:]
    output = " ".join(result.output.split())
    assert "another deploy is under way: spark1: " in output and ": deploy of lab, since " in output
    assert "Nothing was touched on any host." in output and "Traceback" not in output
    waiting.says(r"waiting for .* deploy of lab, since ")
    os.kill(deploying.pid, signal.SIGCONT)
    result = deploying.end()
    assert result.code == 0 and result.changed_operations != set(), result.output[-3000:]
    result = waiting.end()
    assert result.code == 0 and result.changed_operations == set(), result.output[-3000:]


def test_a_killed_deploy_leaves_no_lock(deployed_stack):
    chance = random.Random(19)
    for kill in range(KILLS):
        deploy = deployed_stack.start(*ONE)
        until(lambda: not free(deployed_stack.spark1), "the deploy has the lock")
        # A random moment of the about 4 s of a deploy that changes nothing.
        time.sleep(chance.uniform(0.0, 3.0))
        deploy.kill()
        until(lambda: free(deployed_stack.spark1), f"the lock after kill {kill}")
    deployed_stack.good_deploy(*ONE)


def test_the_log_has_deploys_and_switches_of_all_hosts_in_the_order_of_time(deployed_stack):
    for host in deployed_stack.hosts:
        assert host.switch("none").code == 0
    answer = deployed_stack.lockstep("log", "--json")
    assert answer.code == 0, answer.text
    lines = [(entry["host"], entry["line"]) for entry in json.loads(answer.out)["lines"]]
    assert {host for host, line in lines if line.endswith(": deploy of lab: done")} == {
        *("spark1", "spark2")
    }
    last = [(host, line.partition(": ")[2][:14]) for host, line in lines[-2:]]
    assert last == [("spark1", "switch to none"), ("spark2", "switch to none")]
