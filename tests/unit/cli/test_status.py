"""`lockstep status`: all Sparks in one screen, and one that is silent holds nobody up."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from an_inventory import ANNA
from click.testing import Result
from over_ssh import environment, invoke_lockstep, start_lockstep

from lockstep.cli import status
from lockstep.fleet import watching
from lockstep.fleet.status_view import lines
from lockstep.fleet.watching import SparkState

HOSTS = {name: {"ssh_user": "anna", **ANNA} for name in ("spark-1", "spark-2")}
# Answers as the host that it was asked for, and stays connected as `--follow` does.
SSH = """\
for word in "$@"; do host=$command; command=$word; done
echo "$host $command" >> "$(dirname "$0")/calls"
case $host in
  spark-1) {first} ;;
  spark-2) {second} ;;
esac
"""
NOW = 1_790_000_000.0
MODEL = {
    **{"name": "qwen", "state": "hot", "recipe": "qwen-k3", "since": NOW - 11100, "detail": ""},
    **{"wedge": None, "memory_kill": None, "sense": None},
}
FACTS: dict[str, Any] = {
    "host": "spark-1",
    "hot": "qwen",
    "models": {"qwen": MODEL, "mistral": {**MODEL, "name": "mistral", "state": "off"}},
    "memory_gib": {"total": 121.7, "available": 41.2, "free": 3.0},
    "switching": None,
    "phase": None,
    "problems": [],
    "last_switch": None,
    "last_boot": None,
    "boot": None,
    "at": NOW,
    "engine": {"tok_s": 57.0, "requests": 3},
    "gpu": {"temperature_c": 61.0, "clock_mhz": 2080.0, "power_w": None, "held_down_by": []},
    "disk": {"path": "/data", "total_gib": 3660.0, "free_gib": 2100.0},
    "switches": [{"at": NOW - 11100, "person": "anna", "model": "qwen", "code": 0}],
    "diff": None,
}


def answers(**more: Any) -> str:
    """Shell text that prints these facts twice and stays."""
    line = json.dumps({**FACTS, **more})
    return f"echo '{line}'; echo '{line}'; exec sleep 60"


def ssh(first: str, second: str) -> str:
    """An ssh that prints these answers."""
    return SSH.replace("{first}", first).replace("{second}", second)


def run(path: Path, *words: str, first: str = answers(), second: str = answers()) -> Result:
    return invoke_lockstep(path.parent, ssh(first, second), "status", "-i", str(path), *words)


def screen_text(**more: Any) -> str:
    """The screen for one Spark with these facts."""
    return "\n".join(text for _, text in lines(SparkState({**FACTS, **more})))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only bounds a hang: on a busy machine a program needs seconds to start.
    for module in (watching, status):
        monkeypatch.setattr(module, "SILENT_S", 180.0)


def test_every_spark_is_in_one_screen(inventory: Path) -> None:
    result = run(inventory)
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert text.startswith("spark-1 qwen hot since ") and " spark-2 qwen hot since " in text
    assert text.count("(3 h 5 min), 57.0 tok/s, 3 requests") == 2
    assert max(map(len, result.output.splitlines())) <= 80
    calls = (inventory.parent / "bin/calls").read_text().splitlines()
    assert sorted(calls) == [
        f"{name} /data/scripts/llm/switch.sh status --follow" for name in ("spark-1", "spark-2")
    ]


def test_a_silent_spark_is_said_and_the_other_is_shown(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = watching.Watching.until

    def wait_for_spark(
        sparks: watching.Watching, _: object, limit_s: float
    ) -> dict[str, SparkState]:
        # The time is over when the other one is known, however long that takes here.
        return until(sparks, lambda all_: all_["spark-1"].looks > 1, limit_s)

    monkeypatch.setattr(watching.Watching, "until", wait_for_spark)
    result = run(inventory, second="exec sleep 60")
    assert result.exit_code == 2
    assert "silent: no answer " in result.output and "qwen hot since" in result.output


def test_no_connection_is_said_with_its_reason(inventory: Path) -> None:
    result = run(inventory, second="echo 'ssh: connect to host spark-2: No route' >&2; exit 255")
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "silent: no connection: ssh: connect to host spark-2: No route" in words


def test_a_host_that_nobody_deployed_to_is_said_to_be_that(inventory: Path) -> None:
    message = "bash: line 1: /data/scripts/llm/switch.sh: No such file or directory"
    result = run(inventory, second=f"echo '{message}' >&2; exit 127")
    assert result.exit_code == 1 and "silent" not in result.output
    words = " ".join(result.output.split())
    assert "spark-2 not deployed yet → lockstep deploy" in words
    result = run(inventory, second="echo 'sh: another: not found' >&2; exit 127")
    assert result.exit_code == 2 and "silent: sh: another: not found" in result.output


def test_a_broken_rule_ends_with_1(inventory: Path) -> None:
    result = run(inventory, second=answers(problems=["2 engines at once: a, b"]))
    assert result.exit_code == 1 and "BROKEN 2 engines at once: a, b" in result.output


def test_limit_leaves_the_others_alone(inventory: Path) -> None:
    result = run(inventory, "--limit", "spark-2")
    assert result.exit_code == 0 and "spark-1" not in result.output
    assert "spark-1" not in (inventory.parent / "bin/calls").read_text()


def test_json_has_the_same_facts(inventory: Path) -> None:
    result = run(inventory, "--json", second="exit 3")
    document = json.loads(result.output)
    assert document["spark-1"] == {"facts": FACTS, "fault": None}
    assert document["spark-2"] == {"facts": None, "fault": "its status ended with 3"}


@contextlib.contextmanager
def status_watch(inventory: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """`lockstep status --watch` into a pipe."""
    variables = os.environ | environment(inventory.parent, ssh(answers(), answers()))
    with start_lockstep(
        *("status", "-i", str(inventory), "--watch", *words),
        env=variables,
        # As a terminal has it, which sends Ctrl-C to all of the group.
        begin=os.setpgrp,
        stdout=subprocess.PIPE,
    ) as watch:
        assert watch.stdout is not None
        yield watch, watch.stdout


def test_watch_goes_on_until_ctrl_c_and_ends_its_connections(inventory: Path) -> None:
    with status_watch(inventory, "--json") as (watch, output):
        states = [json.loads(output.readline()) for _ in range(2)]
        os.killpg(watch.pid, signal.SIGINT)
        assert watch.wait(180) == 130
    assert [line["spark-1"]["facts"]["hot"] for line in states] == ["qwen", "qwen"]


def test_watch_without_a_terminal_prints_each_state_until_nobody_reads(inventory: Path) -> None:
    with status_watch(inventory) as (watch, output):
        heads = 0
        while heads < 2:
            heads += output.readline().startswith("spark-1 ")
        output.close()
        assert watch.wait(180) == 0


def test_a_switch_under_way_and_what_is_wrong_stand_out() -> None:
    switching = {"user": "anna", "model": "mistral", "since": NOW, "pid": 1}
    wedge = {**MODEL, "wedge": "the wedge watch restarted it", "sense": "it makes sense"}
    text = screen_text(
        switching=switching,
        phase="loading weights, file 6 of 13",
        models={"qwen": wedge},
        last_boot="cut off at 08:00",
        gpu={"temperature_c": 88.0, "held_down_by": ["thermal slow-down"]},
    )
    assert "NOW anna is switching to mistral: loading weights, file 6 of 13" in text
    assert "qwen: the wedge watch restarted it" in text and "it makes sense" in text
    assert "last boot cut off at 08:00" in text
    assert "GPU 88 °C, held down by thermal slow-down" in text


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"hot": None}, "no model hot"),
        ({"engine": None, "gpu": None, "disk": None, "switches": []}, "memory 41.2 of 121.7"),
        ({"engine": {"tok_s": None, "requests": 1}}, "min), 1 request\n"),
    ],
)
def test_what_cannot_be_told_is_left_out(more: dict[str, Any], text: str) -> None:
    assert text in screen_text(**more)


def test_the_last_diff_is_counted_with_its_age() -> None:
    differences = [{"severity": "warning"}, {"severity": "note"}, {"severity": "note"}]
    diff = {"at": NOW - 7200, "differences": differences, "more": 0, "unknown": []}
    assert "drift 2 h 0 min ago: 1 warning, 2 note" in screen_text(diff=diff)
    # An untouched Spark beside one that was wiped has nothing wrong.
    other_diff = copy.deepcopy(diff) | {"differences": 3 * [{"severity": "differs"}]}
    assert "drift 2 h 0 min ago: 3 unlike another Spark" in screen_text(diff=other_diff)
    none = copy.deepcopy(diff) | {"differences": []}
    assert "drift 2 h 0 min ago: none" in screen_text(diff=none)
