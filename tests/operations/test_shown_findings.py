"""What a deploy says about findings before it touches a host, and when it ends there."""

from __future__ import annotations

import pytest

from lockstep.core.findings import Finding
from lockstep.tasks import run

WARNING = Finding("cdi-stale", "warning", "spark-1", "made for another driver", "Make it anew.")
ERROR = Finding("clock", "error", "spark-2", "its clock differs", "Set it.")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(run.logger, "info", lines.append)
    return lines


def test_a_warning_that_no_other_command_shows_is_shown_whole(said: list[str]) -> None:
    run._refuse([WARNING], [], "preflight")
    assert "made for another driver" in said[0] and "Make it anew." in said[0]


def test_a_warning_that_the_plan_shows_too_is_one_line(said: list[str]) -> None:
    run._refuse([WARNING], [], "the plan", shown_by="lockstep plan")
    assert said == ["--> 1 warning(s) by the plan (`lockstep plan` shows them): cdi-stale"]


def test_an_error_ends_the_run_after_all_findings_of_preflight(said: list[str]) -> None:
    with pytest.raises(run.Refusal, match="nothing was touched"):
        run._refuse([WARNING, ERROR], [], "preflight")
    assert "its clock differs" in said[0] and "made for another driver" in said[0]


def test_without_findings_nothing_is_said(said: list[str]) -> None:
    run._refuse([], [], "preflight")
    assert said == []


def test_what_the_inventory_waives_is_shown_and_ends_nothing(said: list[str]) -> None:
    run._refuse([], [ERROR], "preflight")
    assert "its clock differs" in said[0] and "waived" in said[0]
