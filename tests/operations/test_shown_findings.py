"""The findings that a deploy shows before it touches a host, and the findings that end it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.core.findings import Finding
from lockstep.lock.pins import ImagePin, Pins
from lockstep.tasks.run import run_state

WARNING = Finding("cdi-stale", "warning", "spark-1", "made for another driver", "Make it anew.")


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(run_state.logger, "info", lines.append)
    return lines


def test_a_warning_that_no_other_command_shows_is_shown_whole(log_lines: list[str]) -> None:
    run_state._show_findings_or_refuse([WARNING], [], "preflight")
    assert "made for another driver" in log_lines[0] and "Make it anew." in log_lines[0]


def test_a_warning_that_the_plan_shows_too_is_one_line(log_lines: list[str]) -> None:
    run_state._show_findings_or_refuse([WARNING], [], "the plan", shown_by="lockstep plan")
    assert log_lines == ["--> 1 warning(s) by the plan (`lockstep plan` shows them): cdi-stale"]


def test_what_the_new_lock_alone_knows_ends_a_deploy_too(
    log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an image's entry point on the first deploy of all."""
    wrong = replace(WARNING, code="entry-point", severity="error")
    new = Pins(images={"a/b:1": ImagePin("sha256:" + "0" * 64, "aarch64", 1)})
    monkeypatch.setattr(
        run_state, "_findings_of_plan", lambda _, pins: ([wrong] if pins.images else [WARNING], [])
    )
    monkeypatch.setattr(run_state, "_resolve_missing_pins", lambda plans, known_pins, path: new)
    with pytest.raises(run_state.DeployRefusal, match="the plan with the new lock"):
        run_state._judge_and_complete_pins([], Pins(), Path("lock"))
    monkeypatch.setattr(
        run_state, "_resolve_missing_pins", lambda plans, known_pins, path: known_pins
    )
    assert run_state._judge_and_complete_pins([], Pins(), Path("lock")) == Pins()
