"""Lines for people that have a meaning for programs."""

from __future__ import annotations

import pytest

from lockstep.onhost.core import event_lines, terminal_lines


@pytest.mark.parametrize("kind", event_lines.KINDS)
def test_an_event_is_read_as_it_was_told(kind):
    event = event_lines.EventLine(kind, "  qwen: 3 of 13 files")
    read = event_lines.read_event(event_lines.line_for_programs(event))
    assert (read, event_lines.kind_of(read)) == (event, kind)


@pytest.mark.parametrize(
    "line",
    [
        "lockstep ready: the engine died",
        # A kind of a later release: people see all of it.
        "lockstep thawing: the page cache",
        "lockstep failed",
        "x lockstep failed: y",
        "",
    ],
)
def test_a_line_of_no_known_kind_is_text(line):
    read = event_lines.read_event(line)
    assert (read, event_lines.kind_of(read)) == (line, "")
    assert event_lines.line_for_programs(read) == line


def test_people_get_the_text_and_programs_the_form(monkeypatch, capsys):
    event = event_lines.EventLine("done", "qwen is hot " * 20)
    monkeypatch.delenv(event_lines.READER, raising=False)
    event_lines.say(event)
    terminal_lines.say(event)
    first, *other_lines = capsys.readouterr().out.splitlines()
    assert first == event and other_lines[1:]
    assert not any("lockstep" in line for line in other_lines)
    monkeypatch.setenv(event_lines.READER, "1")
    terminal_lines.say(event)
    assert capsys.readouterr().out == f"lockstep done: {event}\n"
    assert terminal_lines.fold_text(event) == event
