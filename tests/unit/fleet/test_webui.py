"""The copy of Open WebUI's data that fits an older image, and its gaps."""

import json

import pytest
from a_spark import spark

from lockstep.fleet import webui
from lockstep.fleet.hosts import Host, HostAnswer

PLAN = spark()
IMAGE = "ghcr.io/open-webui/open-webui@sha256:older"
COPY = {"image": IMAGE, "number": 4, "date": "D", "generation": 3, "chats_since": 2}


def fitting(
    monkeypatch: pytest.MonkeyPatch, answer: HostAnswer, image: str = IMAGE
) -> list[webui.Fitting]:
    """The copies for a host whose programs give this answer."""
    monkeypatch.setattr(webui, "ask", lambda *_, **__: answer)
    return webui.fitting([Host(PLAN, {"ssh_hostname": "192.0.2.1"})], {PLAN.name: image})


def copies_answer(image: str, *copies: dict[str, object]) -> HostAnswer:
    return HostAnswer(code=0, out=json.dumps({"image": image, "snapshots": copies}))


def test_the_newest_copy_of_the_older_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_of_other, older = {**COPY, "image": "another", "number": 5}, {**COPY, "number": 2}
    answer = copies_answer("newer", copy_of_other, COPY, older)
    (copy,) = fitting(monkeypatch, answer)
    assert (copy.number, copy.generation, copy.image) == (4, 3, IMAGE)
    assert copy.loss.startswith("2 chat(s)")
    # Chats that cannot be counted are not said to be none.
    assert "is not in it" in webui.Fitting(Host(PLAN, {}), number=1).loss
    # A host that has no such copy is named.
    (copy,) = fitting(monkeypatch, copies_answer("newer", copy_of_other))
    assert copy.number is None
    (copy,) = fitting(monkeypatch, HostAnswer(fault="no connection"))
    assert copy.fault == "no connection"
    assert fitting(monkeypatch, copies_answer(IMAGE)) == []
    assert fitting(monkeypatch, copies_answer("newer"), image="") == []
