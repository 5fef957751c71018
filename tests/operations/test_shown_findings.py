"""What a deploy says about findings before it touches a host, and when it ends there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.core.findings import Finding
from lockstep.lock.pins import ImagePin, Pins
from lockstep.tasks import run

WARNING = Finding("cdi-stale", "warning", "spark-1", "made for another driver", "Make it anew.")


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


def test_what_the_new_lock_alone_knows_ends_a_deploy_too(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an image's entry point on the first deploy of all."""
    wrong = replace(WARNING, code="entry-point", severity="error")
    new = Pins(images={"a/b:1": ImagePin("sha256:" + "0" * 64, "aarch64", 1)})
    monkeypatch.setattr(
        run, "_planned", lambda _, pins: ([wrong] if pins.images else [WARNING], [])
    )
    monkeypatch.setattr(run, "_resolved", lambda plans, known, path: new)
    with pytest.raises(run.Refusal, match="the plan with the new lock"):
        run._judge_and_lock([], Pins(), Path("lock"))
    monkeypatch.setattr(run, "_resolved", lambda plans, known, path: known)
    assert run._judge_and_lock([], Pins(), Path("lock")) == Pins()
