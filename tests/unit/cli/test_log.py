"""`lockstep log`: the lines of all Sparks in one order, and who did not answer."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from an_inventory import ANNA, write_inventory
from click.testing import CliRunner, Result
from rich.console import Console

from lockstep.cli import log as module
from lockstep.cli.main import main
from lockstep.fleet.login import Login

ANSWERS: dict[str, tuple[Any, str]] = {
    "spark-1.local": ([[1000.0, "anna: switch to qwen: hot"], [3000.5, "anna: gc: x"]], ""),
    "two.local": ([[2000.0, "anna from laptop: deploy of spark: done"]], ""),
}


class Log:
    """Two Sparks; the name, begin and "steps" of each question to one of them."""

    def __init__(self, folder: Path) -> None:
        hosts = dict.fromkeys(("spark-1.local", "two.local"), ANNA)
        self.inventory = str(write_inventory(folder, hosts))
        self.questions: list[tuple[str, str, str]] = []

    def read(self, where: Login, name: str, question: Any, **_: Any) -> tuple[Any, str]:
        self.questions.append((name, question["since"], question["steps"]))
        return ANSWERS[where.name]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["log", "-i", self.inventory, *words])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(tmp_path)
    monkeypatch.setattr(module, "read", log.read)
    return log


def test_all_hosts_are_shown_in_order_of_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    result = log.run("--since", "2026-11-20")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "1970-01-01 00:16:40  spark-1.local  anna: switch to qwen: hot",
        "1970-01-01 00:33:20  two.local      anna from laptop: deploy of spark: done",
        "1970-01-01 00:50:00  spark-1.local  anna: gc: x",
    ]
    first = int(datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC).timestamp())
    assert log.questions == 2 * [("logged_events.audit_events", f"@{first}", "no")]
    # A phone has the line below its host.
    monkeypatch.setattr("lockstep.core.terminal.console", lambda: Console(width=40))
    assert log.run().output.splitlines()[2:5] == [
        "1970-01-01 00:33:20  two.local",
        "  anna from laptop: deploy of spark:",
        "  done",
    ]


def test_a_week_is_shown_and_no_steps_unless_more_is_asked_for(log: Log) -> None:
    for more in ((), ("--verbose",), ("--json",)):
        assert log.run("--limit", "two.local", *more).exit_code == 0
    assert [steps for *_, steps in log.questions] == ["no", "yes", "yes"]
    ago = datetime.datetime.now().timestamp() - int(log.questions[0][1].removeprefix("@"))
    assert ago == pytest.approx(7 * 86400, abs=600)


def test_a_silent_host_is_named_beside_others(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "two.local", (None, "no connection: timed out"))
    result = log.run()
    assert result.exit_code == 2
    assert "two.local: no connection: timed out" in result.output and "anna: gc: x" in result.output
    document = json.loads(log.run("--json").stdout)
    assert document["unknown"] == {"two.local": "no connection: timed out"}
    assert [line["at"] for line in document["lines"]] == [1000.0, 3000.5]
