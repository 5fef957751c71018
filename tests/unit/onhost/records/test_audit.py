"""The line of one thing that was done."""

from __future__ import annotations

import syslog

import pytest

from lockstep.onhost.records import audit


def test_it_is_one_line_whatever_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("syslog.syslog", lambda _, line: lines.append(line))
    audit.note("anna", "switch to qwen", "failed:\n  its fallback is hot")
    audit.note("anna", "deploy of spark", "done", "laptop")
    assert lines == [
        "anna: switch to qwen: failed: its fallback is hot",
        "anna from laptop: deploy of spark: done",
    ]


def test_a_step_of_a_deploy_is_less_than_what_somebody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, int] = {}
    monkeypatch.setattr("syslog.syslog", lambda priority, line: found.update({line: priority}))
    audit.note("anna", "deploy", "changed Base", step=True)
    audit.note("anna", "deploy", "done")
    assert found == {
        "anna: deploy: changed Base": syslog.LOG_DEBUG,
        "anna: deploy: done": syslog.LOG_INFO,
    }
