"""A group of two hosts under faults, and refusals of its launch check.

The whole matrix, also with the real vLLM, is `make cluster-faults`. The tests go from one to the
next with as few deploys and starts of the group as possible.
"""

from pathlib import Path

import booting
import cluster_faults
import pytest
from cluster_faults import REAL, STANDIN, Case
from faults import KNOBS
from stack import until

from lockstep.onhost.records import models_by_boot

UNIT = cluster_faults.UNITS[STANDIN]


@pytest.fixture(scope="module")
def inventory(stack, first):
    """The two hosts as one cluster whose members make their last model hot again."""
    # A start of the real vLLM on both takes 50 s of processor time. engines/test_engine_parsers has
    # its real parser read the flags of ranks.
    return stack.inventory("at boot", cluster_faults.INVENTORY, boot="last", models={REAL: None})


@pytest.fixture(scope="module")
def together(stack, inventory):
    """The hosts after a deploy of the cluster; undone afterwards."""
    stack.good_deploy(inventory=inventory)
    yield stack
    stack.spark1.switch("none", "--wait")
    for host in stack.hosts:
        host.root(f"rm -f {KNOBS}/standin-*.json")
    stack.good_deploy()


@pytest.fixture(scope="module")
def hot(together):
    """Make the group hot."""
    for host in together.hosts:
        # The power cuts of other tests count like those of this file.
        host.root(f"rm -f {booting.RECORD}")
    assert together.spark1.switch(STANDIN).code == 0


@pytest.fixture(scope="module")
def cold(together):
    """Make every model cold."""
    assert together.spark1.switch("none").code == 0


def test_what_is_split_over_hosts_is_measured_where_it_answers(together, hot, inventory):
    answer = together.lockstep("bench", "spark2", "--quick", inventory=inventory)
    assert answer.code == 2
    assert "answers on another host of cluster pair" in " ".join(answer.text.split())
    assert "Measure it on spark1" in " ".join(answer.text.split())


def test_after_a_power_cut_the_first_member_waits_for_the_others(together, hot):
    first_host, two = together.hosts
    power = booting.Booting(together, two)
    power.take_power()
    try:
        together.lab("cycle", first_host.name)
        journal_command = f"journalctl -b -o cat --no-pager -u {models_by_boot.UNIT}"
        waits = f"{STANDIN} waits for spark2"
        until(lambda: waits in first_host.root(journal_command), f"spark1: {waits}")
        assert first_host.active() == set()
    finally:
        power.give_power()
    for host in (first_host, two):
        until(lambda host=host: host.status()["hot"] == STANDIN, f"{host.name}: {STANDIN} is hot")
    assert f"nothing is made hot: spark1 makes {STANDIN} hot" in two.root(journal_command)


@pytest.mark.parametrize(
    "case",
    [
        Case(0, model=STANDIN, fault="killed", rank=1, phase="request"),
        Case(1, model=STANDIN, fault="cut", rank=1, phase="idle"),
    ],
    ids=str,
)
def test_no_half_of_a_group_stays_up(together, case):
    cluster_faults.run(together, case)
    assert case.violations == []


def test_a_rank_alone_is_refused_with_the_remedy(together, cold):
    def lone_start() -> str:
        # systemd itself refuses a unit that the tests before have started often.
        two.look(f"systemctl reset-failed {UNIT}")
        # At the console: a login right after the cut of the tests before may fail instead.
        answer = two.look(f"systemctl start {UNIT}")
        assert "Job for" in answer.text, answer
        journal = two.root(f"journalctl -q -b --no-pager -o cat -n 20 -u {UNIT}")
        return journal if f"never here alone. Remedy: switch.sh {STANDIN}" in journal else ""

    two = together.two
    # The agent stops a rank that is up alone; that may come before the check's own refusal.
    until(lone_start, f"spark2: {UNIT} is refused with the remedy")
    two.look(f"systemctl reset-failed {UNIT}")


def test_the_launch_check_refuses_a_member_that_differs_and_names_all_differences(together, cold):
    """All that is compared: tests/unit/onhost/cluster/test_launch_check.py."""
    two, launcher = together.two, f"/data/scripts/llm/{Path(UNIT).stem}-launch.sh"
    two.root(f"cp -p {launcher} /run/kept.sh; sed -i 's/--nnodes/--enable-metrics &/' {launcher}")
    two.root("ip link set dev enP7s7 mtu 1400")
    try:
        answer = together.spark1.switch(STANDIN)
    finally:
        two.root(f"mv /run/kept.sh {launcher}; ip link set dev enP7s7 mtu 1500")
    assert answer.code == 1, answer.text
    text = " ".join(answer.text.split())
    assert "the members of pair differ; nothing was stopped. " in text
    assert f"changed since the deploy: spark1 nothing, spark2 {launcher} (" in text
    assert "MTU of the fabric: spark1 1500, spark2 1400" in text
