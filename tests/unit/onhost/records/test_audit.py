"""The line of one thing that was done."""

from __future__ import annotations

import pytest

from lockstep.onhost.records import audit


def test_it_is_one_line_whatever_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("syslog.syslog", lines.append)
    audit.note("anna", "switch to qwen", "failed:\n  its fallback is hot")
    audit.note("anna", "deploy of spark", "done", "laptop")
    assert lines == [
        "anna: switch to qwen: failed: its fallback is hot",
        "anna from laptop: deploy of spark: done",
    ]
