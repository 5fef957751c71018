"""The heartbeats of a deploy, as pyinfra writes them."""

from itertools import islice

import pytest

from lockstep.deploy import heartbeat_stream
from lockstep.deploy.heartbeat_stream import Beats


def test_a_document_comes_before_lines_and_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_stream, "BEAT_S", 0.01)
    beat_lines = Beats("{}")
    assert beat_lines and not beat_lines.first_beat.is_set()
    # pyinfra tells a list from a text.
    assert isinstance(beat_lines, list)
    lines = iter(beat_lines)
    assert next(lines) == "{}" and beat_lines.first_beat.is_set()
    assert list(islice(lines, 2)) == ["", ""]
    beat_lines.say("changed Base |\nWrite")
    beat_lines.end()
    assert list(lines) == ["changed Base | Write"]
