"""The line of one thing that was done."""

from __future__ import annotations

import syslog

import pytest

from lockstep.onhost.records import audit_log


def test_it_is_one_line_and_a_step_of_a_deploy_is_less_than_what_somebody_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries: list[tuple[int, str]] = []
    monkeypatch.setattr("syslog.syslog", lambda priority, line: entries.append((priority, line)))
    audit_log.add_audit_line("anna", "switch to qwen", "failed:\n  its fallback is hot")
    audit_log.add_audit_line("anna", "deploy", "changed Base", step=True)
    audit_log.add_audit_line("anna", "deploy", "done", "laptop")
    assert entries == [
        (syslog.LOG_INFO, "anna: switch to qwen: failed: its fallback is hot"),
        (syslog.LOG_DEBUG, "anna: deploy: changed Base"),
        (syslog.LOG_INFO, "anna from laptop: deploy: done"),
    ]
