"""The copy of Open WebUI's data that fits an older image, and its gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a_spark import spark

from lockstep.fleet import webui
from lockstep.fleet.hosts import Host, HostAnswer

PLAN = spark()
IMAGE = "ghcr.io/open-webui/open-webui@sha256:older"
IMAGES = {PLAN.name: IMAGE}
COPY = {"number": 4, "date": "2026-11-23 10:00 UTC", "generation": 3, "chats_since": 2}


def host(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Host:
    """A host whose programs give these answers."""
    monkeypatch.setattr(webui, "ask", lambda *_, **__: answer)
    return Host(PLAN, {"ssh_hostname": "192.0.2.1"})


def copies_answer(image: str, *copies: dict[str, object]) -> HostAnswer:
    return HostAnswer(code=0, out=json.dumps({"image": image, "snapshots": copies}))


def test_the_newest_copy_of_the_older_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    older = {**COPY, "image": IMAGE, "number": 2}
    copies = ({**COPY, "image": "another", "number": 5}, {**COPY, "image": IMAGE}, older)
    (fitting,) = webui.fitting([host(monkeypatch, copies_answer("newer", *copies))], IMAGES)
    assert (fitting.number, fitting.generation, fitting.image) == (4, 3, IMAGE)
    assert fitting.loss.startswith("2 chat(s)")


def test_a_host_that_has_no_such_copy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = {**COPY, "image": "another"}
    (fitting,) = webui.fitting([host(monkeypatch, copies_answer("newer", copy))], IMAGES)
    assert fitting.number is None


def test_a_host_that_has_the_same_image_is_of_no_interest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert webui.fitting([host(monkeypatch, copies_answer(IMAGE))], IMAGES) == []
    assert webui.fitting([host(monkeypatch, copies_answer("newer"))], {PLAN.name: ""}) == []


def test_a_host_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (fitting,) = webui.fitting([host(monkeypatch, HostAnswer(fault="no connection"))], IMAGES)
    assert fitting.fault == "no connection"


def test_chats_that_cannot_be_counted_are_not_said_to_be_none() -> None:
    assert "is not in it" in webui.Fitting(Host(PLAN, {}), number=1).loss
