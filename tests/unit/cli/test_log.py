"""`lockstep log`: the lines of all Sparks in one order, and who did not answer."""

import datetime
import json

import pytest
from an_inventory import ANNA, write_inventory
from click.testing import CliRunner

from lockstep.cli import log as module
from lockstep.cli.main import main

ANSWERS = {
    "spark-1.local": ([[1000.0, "anna: switch to qwen: hot"], [3000.5, "anna: gc: x"]], ""),
    "two.local": ([[2000.0, "anna from laptop: deploy of spark: done"]], ""),
}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Gives the end of `lockstep log WORDS`, and the questions to the two Sparks."""
    inventory = write_inventory(tmp_path, dict.fromkeys(ANSWERS, ANNA))

    def run(*words: str):
        questions = []

        def read(where, name, question, **_):
            questions.append((name, question["since"], question["steps"]))
            return ANSWERS[where.name]

        monkeypatch.setattr(module, "read", read)
        return CliRunner().invoke(main, ["log", "-i", str(inventory), *words]), questions

    return run


def test_all_hosts_are_shown_in_order_of_time(log) -> None:
    result, questions = log("--since", "2026-11-20")
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "1970-01-01 00:16:40  spark-1.local  anna: switch to qwen: hot",
            "1970-01-01 00:33:20  two.local      anna from laptop: deploy of spark: done",
            "1970-01-01 00:50:00  spark-1.local  anna: gc: x",
        ],
    )
    first = int(datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC).timestamp())
    assert questions == 2 * [("logged_events.audit_events", f"@{first}", "no")]


def test_a_week_is_shown_and_no_steps_unless_more_is_asked_for(log) -> None:
    for more, steps in (((), "no"), (("--verbose",), "yes"), (("--json",), "yes")):
        _, [(_, since, wanted_steps)] = log("--limit", "two.local", *more)
        assert wanted_steps == steps
        ago = datetime.datetime.now().timestamp() - int(since.removeprefix("@"))
        assert ago == pytest.approx(7 * 86400, abs=600)


def test_a_silent_host_is_named_beside_others(log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "two.local", (None, "no connection: timed out"))
    result, _ = log()
    assert result.exit_code == 2
    assert "two.local: no connection: timed out" in result.output and "anna: gc: x" in result.output
    document = json.loads(log("--json")[0].stdout)
    assert document["unknown"] == {"two.local": "no connection: timed out"}
    assert [line["at"] for line in document["lines"]] == [1000.0, 3000.5]
