"""Open WebUI's stand-in in a browser: every model of the gateway, hot and cold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import Host, Stack
from webui import PORT, signed_in, tunnel


@pytest.fixture(scope="module")
def host(stack: Stack, first: object) -> Iterator[Host]:
    """spark1 with qwen hot, and its Open WebUI at a port of the control machine."""
    answer = stack.one.switch("qwen")
    assert answer.code == 0, answer.text
    with tunnel(stack.one, PORT):
        yield stack.one
    assert stack.one.switch("none").code == 0


def test_the_list_has_every_model_and_a_cold_one_says_what_is_hot(host: Host) -> None:
    with signed_in(host) as somebody:
        assert {"qwen", "mistral", "tiny", "auto"} <= set(somebody.models())
        assert somebody.chosen == "auto"
        somebody.say("Count from 1 to 12")
        somebody.reads("1 2 3 4 5 6 7 8 9 10 11 12")
        somebody.new_chat("mistral")
        somebody.say("Count from 1 to 12")
        somebody.reads("mistral is cold")
        somebody.reads("qwen is hot")
    assert host.status()["hot"] == "qwen"
