"""`lockstep status`: all Sparks in one screen, and one that is silent holds nobody up."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

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
    **dict.fromkeys(("switching", "phase", "last_switch", "last_boot", "boot", "diff")),
    "host": "spark-1",
    "hot": "qwen",
    "models": {"qwen": MODEL, "mistral": {**MODEL, "name": "mistral", "state": "off"}},
    "memory_gib": {"total": 121.7, "available": 41.2, "free": 3.0},
    "problems": [],
    "at": NOW,
    "engine": {"tok_s": 57.0, "requests": 3},
    "gpu": {"temperature_c": 61.0, "clock_mhz": 2080.0, "power_w": None, "held_down_by": []},
    "disk": {"path": "/data", "total_gib": 3660.0, "free_gib": 2100.0},
    "switches": [{"at": NOW - 11100, "person": "anna", "model": "qwen", "code": 0}],
}


def answers(**more: Any) -> str:
    """Shell text that prints these facts twice and stays."""
    line = json.dumps({**FACTS, **more})
    return f"echo '{line}'; echo '{line}'; exec sleep 60"


def run(path: Path, *words: str, second: str = answers(), exit_code: int = 0) -> Result:
    ssh = SSH.replace("{first}", answers()).replace("{second}", second)
    result = invoke_lockstep(path.parent, ssh, "status", "-i", str(path), *words)
    assert result.exit_code == exit_code, result.output
    return result


def screen_text(**more: Any) -> str:
    """The screen for one Spark with these facts."""
    return "\n".join(text for _, text in lines(SparkState({**FACTS, **more})))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only bounds a hang: on a busy machine a program needs seconds to start.
    for module in (watching, status):
        monkeypatch.setattr(module, "SILENT_S", 180.0)


def test_every_spark_is_in_one_screen_but_for_a_limit(inventory: Path) -> None:
    result = run(inventory)
    text = " ".join(result.output.split())
    assert text.startswith("spark-1 qwen hot since ") and " spark-2 qwen hot since " in text
    assert text.count("(3 h 5 min), 57.0 tok/s, 3 requests") == 2
    assert max(map(len, result.output.splitlines())) <= 80
    calls = inventory.parent / "bin/calls"
    assert sorted(calls.read_text().splitlines()) == [
        f"{name} /data/scripts/llm/switch.sh status --follow" for name in ("spark-1", "spark-2")
    ]
    calls.unlink()
    result = run(inventory, "--limit", "spark-2")
    assert "spark-1" not in result.output + calls.read_text()


def test_a_spark_without_an_answer_in_time_is_silent(inventory: Path, monkeypatch) -> None:
    monkeypatch.setattr(status, "SILENT_S", 0.0)
    result = run(inventory, second="exec sleep 60", exit_code=2)
    assert "silent: no answer within 0 s" in result.output


NO_ROUTE = "ssh: connect to host spark-2: No route"
NO_SCRIPT = "bash: line 1: /data/scripts/llm/switch.sh: No such file or directory"


def test_a_spark_that_does_not_serve_is_said_with_the_reason(inventory: Path) -> None:
    for second, code, message in (
        (f"echo '{NO_ROUTE}' >&2; exit 255", 2, f"silent: no connection: {NO_ROUTE}"),
        (f"echo '{NO_SCRIPT}' >&2; exit 127", 1, "spark-2 not deployed yet → lockstep deploy"),
        ("echo 'sh: another: not found' >&2; exit 127", 2, "silent: sh: another: not found"),
        (answers(problems=["2 engines: a, b"]), 1, "BROKEN 2 engines: a, b"),
    ):
        result = run(inventory, second=second, exit_code=code)
        assert message in " ".join(result.output.split())
        assert ("silent" in result.output) is (code == 2)


def test_json_has_the_same_facts(inventory: Path) -> None:
    result = run(inventory, "--json", second="exit 3", exit_code=2)
    document = json.loads(result.output)
    assert document["spark-1"] == {"facts": FACTS, "fault": None}
    assert document["spark-2"] == {"facts": None, "fault": "its status ended with 3"}


def test_watch_goes_on_until_ctrl_c_or_until_nobody_reads(inventory: Path) -> None:
    ssh = SSH.replace("{first}", answers()).replace("{second}", answers())
    for words, code in (("--json",), 130), ((), 0):
        with start_lockstep(
            *("status", "-i", str(inventory), "--watch", *words),
            env=os.environ | environment(inventory.parent, ssh),
            # As a terminal has it, which sends Ctrl-C to all of the group.
            begin=os.setpgrp,
            stdout=subprocess.PIPE,
        ) as watch:
            heads = 0
            while heads < 2:
                heads += watch.stdout.readline().startswith(("spark-1 ", '{"spark-1": {"facts": {'))
            os.killpg(watch.pid, signal.SIGINT) if words else watch.stdout.close()
            assert watch.wait(180) == code


def test_facts_that_are_wrong_stand_out_and_untold_ones_are_left_out() -> None:
    wedge = {**MODEL, "wedge": "the wedge watch restarted it", "sense": "it makes sense"}
    text = screen_text(
        switching={"user": "anna", "model": "mistral", "since": NOW, "pid": 1},
        phase="loading weights, file 6 of 13",
        models={"qwen": wedge},
        last_boot="cut off at 08:00",
        gpu={"temperature_c": 88.0, "held_down_by": ["thermal slow-down"]},
    )
    assert "NOW anna is switching to mistral: loading weights, file 6 of 13" in text
    assert "qwen: the wedge watch restarted it" in text and "it makes sense" in text
    assert "last boot cut off at 08:00" in text
    assert "GPU 88 °C, held down by thermal slow-down" in text
    assert "no model hot" in screen_text(hot=None)
    assert "memory 41.2 of 121.7" in screen_text(engine=None, gpu=None, disk=None, switches=[])
    for severities, text in (
        (["warning", "note", "note"], "1 warning, 2 note"),
        # An untouched Spark beside one that was wiped has nothing wrong.
        (3 * ["differs"], "3 unlike another Spark"),
        ([], "none"),
    ):
        differences = [{"severity": severity} for severity in severities]
        diff = {"at": NOW - 7200, "differences": differences, "more": 0, "unknown": []}
        assert f"drift 2 h 0 min ago: {text}" in screen_text(diff=diff)
