"""The last switches of a host, each with its reason."""

from __future__ import annotations

import stat

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import switch_history


def record_switch(paths: layout.Paths, model: str, code: int = 0) -> int:
    """Record a switch with two lines of output."""

    def switch(say) -> int:
        say("starting")
        say(f"  {model} is hot")
        return code

    return switch_history.switch_and_record(paths, "anna", model, switch)


def test_a_switch_is_kept_with_its_last_words_and_said_as_before(paths, capsys):
    assert record_switch(paths, "qwen", 3) == 3
    (record,) = switch_history.load(paths)
    assert (record.person, record.model, record.code) == ("anna", "qwen", 3)
    assert record.words == "qwen is hot"
    assert capsys.readouterr().out == "starting\n  qwen is hot\n"
    assert stat.S_IMODE(paths.switches.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("code", "kept_reasons"),
    # Who met a switch under way did none.
    [(errors.EXIT_USAGE, [(errors.EXIT_USAGE, "it needs more")]), (errors.EXIT_LOCKED, [])],
)
def test_a_refused_switch_is_kept_with_its_reason(paths, code, kept_reasons):
    def refuse_switch(say) -> int:
        raise errors.Problem("it needs more", code)

    with pytest.raises(errors.Problem):
        switch_history.switch_and_record(paths, "anna", "qwen", refuse_switch)
    assert [(record.code, record.words) for record in switch_history.load(paths)] == kept_reasons


def test_the_newest_twenty_are_kept_newest_first_and_a_damaged_record_is_begun_anew(paths):
    paths.log.mkdir(parents=True)
    paths.switches.write_text('[{"at": 1}]')
    assert switch_history.load(paths) == []
    for number in range(25):
        record_switch(paths, f"model{number}")
    kept_models = [record.model for record in switch_history.load(paths)]
    assert kept_models == [f"model{number}" for number in range(24, 4, -1)]


def test_a_switch_is_done_though_its_record_cannot_be_written(paths):
    paths.log.parent.mkdir(parents=True)
    paths.log.write_text("no folder")
    assert record_switch(paths, "qwen") == 0


def test_what_a_switch_usually_takes_is_the_median_of_those_that_started_it():
    switch_records = [
        switch_history.SwitchRecord(1.0, took, "anna", model, code, "its last words", hot_already)
        for took, model, code, hot_already in (
            (90, "qwen", 0, False),
            (400, "qwen", 1, False),
            (110, "qwen", 0, False),
            (5, "tiny", 0, False),
            (900, "qwen", 0, False),
            # They took a second, for nothing was to start.
            *[(1, "qwen", 0, True)] * 3,
        )
    ]
    assert switch_history.usual_seconds_by_model([]) == {}
    assert switch_history.usual_seconds_by_model(switch_records) == {"qwen": 110, "tiny": 5}
