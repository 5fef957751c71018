"""The copy of Open WebUI's data that fits a lock, and its gaps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep.fleet import webui
from lockstep.fleet.hosts import Host, HostAnswer
from lockstep.lock.image_reference import pinned_reference

PLAN = spark()
PINS = pins_for(PLAN)
IMAGE = pinned_reference(PLAN.settings.webui.image, PINS)
COPY = {"number": 4, "date": "2026-11-23 10:00 UTC", "generation": 3, "chats_since": 2}


def host(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Host:
    """A host whose programs give these answers."""
    monkeypatch.setattr(webui, "ask", lambda *_, **__: answer)
    return Host(PLAN, {"ssh_hostname": "192.0.2.1"})


def copies_answer(image: str, *copies: dict[str, object]) -> HostAnswer:
    return HostAnswer(code=0, out=json.dumps({"image": image, "snapshots": copies}))


def test_the_newest_copy_of_the_locks_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    older = {**COPY, "image": IMAGE, "number": 2}
    copies = ({**COPY, "image": "another", "number": 5}, {**COPY, "image": IMAGE}, older)
    (fitting,) = webui.fitting([host(monkeypatch, copies_answer("newer", *copies))], PINS)
    assert (fitting.number, fitting.generation, fitting.image) == (4, 3, IMAGE)
    assert fitting.loss.startswith("2 chat(s)")


def test_a_host_that_has_no_such_copy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = {**COPY, "image": "another"}
    (fitting,) = webui.fitting([host(monkeypatch, copies_answer("newer", copy))], PINS)
    assert fitting.number is None


def test_a_host_that_runs_the_locks_image_is_of_no_interest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert webui.fitting([host(monkeypatch, copies_answer(IMAGE))], PINS) == []
    assert (
        webui.fitting([host(monkeypatch, copies_answer("newer"))], replace(PINS, images={})) == []
    )


def test_a_host_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (fitting,) = webui.fitting([host(monkeypatch, HostAnswer(fault="no connection"))], PINS)
    assert fitting.fault == "no connection"


def test_chats_that_cannot_be_counted_are_not_said_to_be_none() -> None:
    assert "is not in it" in webui.Fitting(Host(PLAN, {}), number=1).loss
