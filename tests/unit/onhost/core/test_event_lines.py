"""Lines for people that have a meaning for programs."""

from lockstep.onhost.core import event_lines, terminal_lines


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
