"""What a deploy says while it lives, as pyinfra writes it."""

from __future__ import annotations

import copy
from itertools import islice

import pytest

from lockstep.deploy import beats
from lockstep.deploy.beats import Beats


def test_it_says_the_document_then_every_line_and_a_sign_of_life_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beats, "BEAT_S", 0.01)
    said = Beats("{}")
    assert said and not said.begun.is_set()
    # pyinfra tells a list from a text, and copies the arguments of a command.
    assert isinstance(said, list) and copy.deepcopy(said) is said
    lines = iter(said)
    assert next(lines) == "{}" and said.begun.is_set()
    assert list(islice(lines, 2)) == ["", ""]
    said.say("changed Base |\nWrite")
    said.end()
    assert list(lines) == ["changed Base | Write"]
