"""`lockstep deploy` to hosts that are as they should be: six lines at most, and nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from stack import Stack


def test_a_deploy_that_changes_nothing_says_what_serves(
    deployed: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = deployed.lockstep("deploy --yes -i")
    assert done.code == 0, done.text
    lines = done.out.splitlines()
    assert "spark1, spark2 serve: qwen, mistral, tiny." in done.out
    assert lines[1].startswith("Nothing to change, ")
    assert len(lines) <= 6
    (log,) = tmp_path.rglob("*.log")
    assert "--> Starting operation: Verify | Record this generation" in log.read_text("utf-8")
