"""A deploy that makes the hot model slower than its floor: taken back, its twin never touched."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from stack import Stack
from test_57_rolling import IMAGE, everything, version, watched

ACCEPTED = "/var/lib/lockstep-deploy/accepted.json"


@pytest.fixture
def hot(stack: Stack, first: object) -> Iterator[Stack]:
    """Both hosts serve qwen; as they were afterwards."""
    for host in stack.hosts:
        answer = host.switch("qwen")
        assert answer.code == 0, answer.text
    yield stack
    for host in stack.hosts:
        host.switch("none")
        host.root(f"rm -f {ACCEPTED}")
    stack.good_deploy()


def test_an_image_that_is_slower_is_taken_back_and_its_twin_is_never_touched(hot: Stack) -> None:
    slow = {"image": f"{IMAGE}:slow", "floor": {"not_below": "60 %"}}
    was = version(hot.one)
    before = everything(hot.two)
    units = hot.one.root("sha256sum /etc/systemd/system/*.service")
    with watched(hot) as found:
        done = hot.deploy(inventory=hot.inventory("slow", targets={"qwen": slow}))
    assert done.code == 1
    assert everything(hot.two) == before
    assert found["spark2"] == []
    assert hot.one.root("sha256sum /etc/systemd/system/*.service") == units
    assert version(hot.one) == was
    accepted = json.loads(hot.one.root(f"cat {ACCEPTED}"))
    assert accepted["qwen"]["decode_tok_s"] > 50, "what there was before the deploy"
    log = hot.one.root("cat /var/log/lockstep/jobs/rollout.log")
    assert "below 60% of the accepted" in log
    assert "the gate refused it; returning to what there was" in log
    assert "qwen is hot again, as it was before this deploy" in " ".join(done.closing.split())
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
