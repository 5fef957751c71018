"""A cluster's model that a deploy changes is up on all its members, or all of them return."""

import threading
from collections.abc import Sequence

import pytest

from lockstep.deploy.cluster_rollout import ClusterRollout, Step

MEMBERS = ("spark-1", "spark-2")
WHY = "glm: with what was deployed it does not start"


class Hosts:
    """Takes the steps; those of `fails` do not succeed."""

    def __init__(self, *fails: tuple[str, Step]) -> None:
        self.fails = fails
        self.steps: list[tuple[str, Step, str]] = []

    def __call__(self, member: str, step: Step, why: str) -> tuple[bool, Sequence[str]]:
        self.steps.append((member, step, why))
        return (member, step) not in self.fails, ["starting glm", WHY]


def test_a_model_that_serves_stays_and_another_goes_down_before_all_return() -> None:
    rollout, hosts = ClusterRollout("glm"), Hosts()
    assert rollout.bring_up("spark-1", MEMBERS, hosts) == []
    assert hosts.steps == [("spark-1", "up", "")]
    assert rollout.is_serving()
    rollout, hosts = ClusterRollout("glm"), Hosts(("spark-2", "up"))
    again = "glm is hot again on all members, as it was before"
    assert rollout.bring_up("spark-2", MEMBERS, hosts) == [WHY, again]
    assert hosts.steps == [
        *(("spark-2", "up", ""), ("spark-2", "down", "")),
        *(("spark-1", "ended", WHY), ("spark-2", "ended", WHY), ("spark-2", "again", "")),
    ]
    assert not rollout.is_serving()
    # A member that does not return keeps no other from it, and is named.
    hosts = Hosts(("spark-1", "up"), ("spark-1", "ended"), ("spark-1", "again"))
    assert ClusterRollout("glm").bring_up("spark-1", MEMBERS, hosts) == [
        WHY,
        "spark-1 did not return to what there was",
        "glm did not come back: `switch.sh status` says what is hot",
    ]
    assert ("spark-2", "ended", WHY) in hosts.steps


def test_the_others_learn_of_the_end_also_where_the_deploy_itself_is_cut_off() -> None:
    rollout = ClusterRollout("glm")
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(rollout.is_serving()))
    waiter.start()

    def cut_off(member: str, step: Step, why: str) -> tuple[bool, Sequence[str]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout.bring_up("spark-1", MEMBERS, cut_off)
    waiter.join(180)
    assert results == [False]


def test_the_first_that_comes_takes_the_model_down_for_all() -> None:
    rollout, begin, go_on = ClusterRollout("glm"), threading.Event(), threading.Event()
    # Where one failed the next one tries again.
    assert not rollout.take_down(lambda: False)
    ends: list[bool] = []

    def down() -> bool:
        begin.set()
        return go_on.wait(180)

    first, second = (
        threading.Thread(target=lambda how=how: ends.append(rollout.take_down(how)))
        for how in (down, lambda: False)
    )
    first.start()
    assert begin.wait(180)
    second.start()
    # The second one waits for the first.
    assert ends == []
    go_on.set()
    first.join(180)
    second.join(180)
    assert ends == [True, True]
