"""Findings that a deploy shows, foreign things that it leaves alone, and what its end says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_host import Host, deploying
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from lockstep.core.findings import Finding
from lockstep.files.managed_file import HOME
from lockstep.lock.pins import ImagePin, Pins
from lockstep.system.accounts import Account
from lockstep.tasks.operations import base_setup, services
from lockstep.tasks.run import remote_commands, run_report, run_state

WARNING = Finding("cdi-stale", "warning", "spark-1", "made for another driver", "Make it anew.")


def test_what_the_new_lock_alone_knows_ends_a_deploy_too(monkeypatch) -> None:
    """As an image's entry point on the first deploy of all."""
    wrong = replace(WARNING, code="entry-point", severity="error")
    new = Pins(images={"a/b:1": ImagePin("sha256:" + "0" * 64, "aarch64", 1)})
    monkeypatch.setattr(
        run_state, "_findings_of_plan", lambda _, pins: ([wrong] if pins.images else [WARNING], [])
    )
    monkeypatch.setattr(run_state, "_resolve_missing_pins", lambda plans, known_pins, path: new)
    with pytest.raises(run_state.DeployRefusal, match="the plan with the new lock"):
        run_state._judge_and_complete_pins([], Pins(), Path("lock"))
    monkeypatch.setattr(run_state, "_resolve_missing_pins", lambda plans, pins, path: pins)
    assert run_state._judge_and_complete_pins([], Pins(), Path("lock")) == Pins()


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
def test_news_and_the_reason_of_a_failed_start_are_kept(is_done, monkeypatch) -> None:
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


UNIT = "/etc/systemd/system/vllm.service"


def test_every_write_says_what_is_adopted() -> None:
    host = Host({}, data={"adopt": (UNIT,)})
    with ctx_host.use(host):
        command = remote_commands.write_files_command({"remove": [UNIT]})
    [text] = command.connector_arguments["_stdin"]
    assert json.loads(text)["asked"] == {"remove": [UNIT], "adopt": [UNIT]}


def accounts(host: Host) -> list[Any]:
    user = Account("lockstep", ("docker",), home=HOME)
    with deploying(host):
        return list(base_setup.create_accounts._inner(groups=[], users=[user]))


def test_an_account_of_somebody_elses_is_put_into_no_group() -> None:
    observed_facts = {
        "account": {"lockstep": "uid 1001"},
        "account home": {"lockstep": "/home/lockstep"},
    }
    facts = {"accounts": observed_facts}
    [refusal] = accounts(Host(facts))
    assert "home /home/lockstep and was not made by Lockstep" in refusal.args[0]
    [command] = accounts(Host(facts, data={"adopt": ["account lockstep"]}))
    assert command.get_raw_value() == "gpasswd --add lockstep docker"
    observed_facts |= {"account home": {"lockstep": HOME}, "right": {"lockstep in docker": "yes"}}
    assert accounts(Host({"accounts": observed_facts})) == []


def test_docker_is_not_restarted_over_the_containers_of_others() -> None:
    state = {"LoadState": "loaded", "ActiveState": "active"}
    old = {"docker.service": {**state, "restart_key": ""}}
    facts: dict[str, Any] = {
        "units": old,
        "deploy_records.foreign_obstacles": {"unit docker.service": "it would end plex"},
    }
    options = {"units": ["docker.service"], "restart_keys": {"docker.service": "0123"}}
    host = Host(facts)
    with deploying(host):
        [refusal] = services.restart_outdated_system_units._inner(**options)
    assert "docker.service is not restarted: it would end plex. Remedy: stop" in refusal.args[0]
