"""Silences that the watch keeps while there is a reason, at a stand-in of Alertmanager."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from lockstep.onhost.monitoring.alertmanager import (
    Alertmanager,
    AlertmanagerRefusal,
    AlertmanagerUnreachable,
)
from lockstep.onhost.monitoring.silences import DEPLOY, SWITCH, Silences

NONE = {SWITCH: False, DEPLOY: False}


class Fake(Alertmanager):
    """Keeps silences by id; raises `away` instead, if it is set."""

    def __init__(self) -> None:
        super().__init__(0)
        self.silence_by_name: dict[str, dict[str, Any]] = {}
        self.request_count = 0
        self.away: Exception | None = None

    def _count_request(self) -> None:
        self.request_count += 1
        if self.away:
            raise self.away

    def silences(self) -> list[dict[str, Any]]:
        self._count_request()
        return list(self.silence_by_name.values())

    def put_silence(self, silence: Mapping[str, Any]) -> str:
        self._count_request()
        name = str(silence.get("id") or len(self.silence_by_name) + 1)
        if "id" in silence and name not in self.silence_by_name:
            raise AlertmanagerRefusal("not found")
        self.silence_by_name[name] = {**silence, "id": name, "status": {"state": "active"}}
        return name

    def end_silence(self, name: str) -> None:
        self._count_request()
        self.silence_by_name[name]["status"] = {"state": "expired"}

    def active(self) -> dict[str, str]:
        """Comment → subjects."""
        return {
            silence["comment"]: silence["matchers"][0]["value"]
            for silence in self.silence_by_name.values()
            if silence["status"]["state"] == "active"
        }


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(fake: Fake, clock: Clock) -> Silences:
    return Silences(fake, clock)


def test_a_switch_silences_the_model_and_is_taken_back(watch: Silences, fake: Fake) -> None:
    assert watch.ensure_silences(NONE | {SWITCH: True}) == ""
    assert fake.active() == {SWITCH: "model"}
    assert watch.ensure_silences(NONE) == ""
    assert fake.active() == {}


def test_a_deploy_silences_the_host_too_and_each_ends_for_itself(
    watch: Silences, fake: Fake
) -> None:
    watch.ensure_silences({SWITCH: True, DEPLOY: True})
    assert fake.active() == {SWITCH: "model", DEPLOY: "model|host"}
    watch.ensure_silences(NONE | {DEPLOY: True})
    assert fake.active() == {DEPLOY: "model|host"}


def test_a_silence_ends_by_itself_soon_and_lasts_as_long_as_its_reason(
    watch: Silences, fake: Fake, clock: Clock
) -> None:
    def ends() -> float:
        (only,) = fake.silence_by_name.values()
        return datetime.fromisoformat(only["endsAt"]).timestamp()

    watch.ensure_silences(NONE | {SWITCH: True})
    assert ends() == clock.now + 120
    for _ in range(600):
        clock.now += 1
        watch.ensure_silences(NONE | {SWITCH: True})
        assert clock.now + 89 <= ends() <= clock.now + 120
    assert fake.request_count < 30


def test_nothing_is_asked_where_there_is_no_reason(watch: Silences, fake: Fake) -> None:
    watch.ensure_silences(NONE)
    earlier_count = fake.request_count
    for _ in range(100):
        watch.ensure_silences(NONE)
    assert fake.request_count == earlier_count


def test_what_a_killed_watch_left_is_taken_over(fake: Fake, clock: Clock) -> None:
    Silences(fake, clock).ensure_silences({SWITCH: True, DEPLOY: True})
    later_silences = Silences(fake, clock)
    later_silences.ensure_silences(NONE | {SWITCH: True})
    assert fake.active() == {SWITCH: "model"} and len(fake.silence_by_name) == 2


def test_silences_of_other_people_stay(watch: Silences, fake: Fake) -> None:
    fake.silence_by_name["7"] = {
        "id": "7",
        "createdBy": "ann",
        "comment": SWITCH,
        "matchers": [{"value": ".*"}],
        "status": {"state": "active"},
    }
    watch.ensure_silences(NONE | {SWITCH: True})
    watch.ensure_silences(NONE)
    assert list(fake.active().values()) == [".*"]


def test_an_alertmanager_that_is_away_is_tried_again(watch: Silences, fake: Fake) -> None:
    fake.away = AlertmanagerUnreachable("refused")
    assert watch.ensure_silences(NONE | {SWITCH: True}) == "refused"
    fake.away = None
    assert watch.ensure_silences(NONE | {SWITCH: True}) == ""
    assert fake.active() == {SWITCH: "model"}


def test_one_that_has_forgotten_its_silences_is_told_anew(
    watch: Silences, fake: Fake, clock: Clock
) -> None:
    watch.ensure_silences(NONE | {SWITCH: True})
    fake.silence_by_name.clear()
    clock.now += 60
    assert watch.ensure_silences(NONE | {SWITCH: True}) == "not found"
    assert watch.ensure_silences(NONE | {SWITCH: True}) == ""
    assert fake.active() == {SWITCH: "model"}
