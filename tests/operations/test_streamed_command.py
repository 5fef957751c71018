"""The end of a run says what a long command told, by the kinds of its lines."""

from __future__ import annotations

from typing import Any

import pytest
from a_host import Host, deploying
from pyinfra.connectors.util import CommandOutput, OutputLine

from lockstep.tasks.run import remote_commands, run_report

LINES = """\
lockstep gate: starting qwen
lockstep failed: qwen FAILED after 40 s: exited with 1
lockstep why:   ValueError: no such option
lockstep news: warning: a source of apt fails
lockstep gate: starting qwen-fallback
loading weights
test question
lockstep answer: answered with 16 tokens
lockstep took: check 0.1 s
lockstep failed: qwen FAILED; its fallback qwen-fallback is hot""".splitlines()
TEXTS = [line.removeprefix("lockstep ").partition(": ")[2] or line for line in LINES]


@pytest.mark.parametrize("is_done", [True, False])
def test_news_and_the_reason_of_a_failed_start_are_kept(
    is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host({}, name="streamed")
    command_output = CommandOutput([OutputLine("stdout", line) for line in LINES])
    monkeypatch.setattr(host, "run_shell_command", lambda *_, **__: (is_done, command_output))
    monkeypatch.setattr(run_report, "_outcomes", {})
    command: Any = remote_commands.transient_job_command("rollout", ["true"])
    with deploying(host) as state:
        command.send_to_host(state, host, {})
    outcome = run_report.outcome_of_host("streamed")
    assert outcome.news == ["streamed: warning: a source of apt fails"]
    assert outcome.reason.splitlines() == ([] if is_done else [*TEXTS[1:3], *TEXTS[4:]])
