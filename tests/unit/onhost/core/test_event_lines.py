"""Lines for people that have a meaning for programs."""

import pytest

from lockstep.onhost.core import event_lines, terminal_lines


@pytest.mark.parametrize(
    "line",
    [
        # A kind of a later release: people see all of it.
        "lockstep thawing: the page cache",
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
    first, *folded_lines = capsys.readouterr().out.splitlines()
    assert first == event and folded_lines[1:]
    monkeypatch.setenv(event_lines.READER, "1")
    terminal_lines.say(event)
    assert capsys.readouterr().out == f"lockstep done: {event}\n"
