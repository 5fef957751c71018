"""Hosts go one after another, whoever asks first, and stop at the first that fails."""

import threading
from collections.abc import Mapping, Sequence

import pytest

from lockstep.deploy.host_turns import HostTurns, Part


def turn_log(parts: Mapping[str, Part], asking: Sequence[str], fails: str = "") -> list[str]:
    """The outcomes of the hosts, each in a thread of its own; `fails` fails in its turn."""
    turns, log = HostTurns(tuple(parts)), list[str]()

    def work(name: str) -> None:
        try:
            with turns.of(name) as take:
                blocker = take(parts[name])
                log.append(f"{name} blocked by {blocker}" if blocker else f"{name} begins")
                if blocker or name == fails:
                    raise ValueError
                log.append(f"{name} ends")
        except ValueError:
            pass

    threads = [threading.Thread(target=work, args=(name,)) for name in asking]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    return log


def test_turns_are_taken_in_order_and_all_after_a_failure_are_told_who_failed() -> None:
    log = turn_log(dict.fromkeys("abc", "restart"), asking="cba")
    assert log == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]
    parts: dict[str, Part] = {"a": "change", "b": "restart", "c": "restart", "d": "nothing"}
    assert sorted(turn_log(parts, asking="abcd", fails="b")) == [
        "a blocked by b",
        "b begins",
        "c blocked by b",
        "d begins",
        "d ends",
    ]


def test_a_host_that_fails_before_its_turn_holds_nobody_back() -> None:
    turns = HostTurns(("a", "b"))
    with pytest.raises(ValueError), turns.of("a"):
        raise ValueError
    with turns.of("b") as take:
        assert take("restart") is None
