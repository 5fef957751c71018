"""`lockstep gc`: what would go from each Spark, a question, and what went."""

import json
from types import SimpleNamespace

import click
import pytest
from an_inventory import TWO, write_inventory
from click.testing import CliRunner

from lockstep.cli import common
from lockstep.cli import gc as module
from lockstep.cli.main import main
from lockstep.fleet.hosts import HostAnswer

ENGINE = {"kind": "engine", "name": "abc", "bytes": 2_500_000_000}
IMAGE = {"kind": "image", "name": "x@sha256:1", "bytes": 700_000}
PLAN = {"items": [ENGINE, IMAGE], "dropped": [1], "digest": "d1"}
NOTHING = {"items": [], "dropped": [], "digest": "d0"}
GONE = {"removed": [ENGINE], "failed": []}
HALF = {"removed": [], "failed": [{**ENGINE, "why": "Permission denied"}]}
SILENT = HostAnswer(255, fault="no connection: timed out")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Gives what `lockstep gc WORDS` prints, and what each Spark's program was told."""
    path = write_inventory(tmp_path, TWO)

    def run(*words, plan=PLAN, removal=GONE, second=NOTHING, exit_code=0):
        commands = []

        def ask(login, argv, limit_s):
            assert argv[:2] == ["sudo", "-n"]
            words = argv[argv.index("cleanup") + 1 :]
            commands.append((login.name, " ".join(words)))
            answer = plan if words[0] == "plan" else removal
            answer = second if login.name == "spark-2.local" else answer
            return answer if answer is SILENT else HostAnswer(0, json.dumps(answer))

        monkeypatch.setattr(module, "ask", ask)
        result = CliRunner().invoke(main, ["gc", "-i", str(path), *words])
        assert result.exit_code == exit_code, result.output
        return result.output, sorted(commands)

    return run


def test_a_dry_run_shows_each_thing_with_its_size_and_removes_nothing(run) -> None:
    output, commands = run("--dry", "--keep", "3")
    assert [" ".join(line.split()) for line in output.splitlines()] == [
        "spark-1.local: 2.3 GiB",
        "what name size",
        "engine abc 2.3 GiB",
        "image x@sha256:1 683.6 KiB",
        "spark-2.local: nothing to remove",
    ]
    assert commands == [("spark-1.local", "plan --keep 3"), ("spark-2.local", "plan --keep 3")]
    # With nothing to remove nobody is asked.
    output, _ = run(plan=NOTHING)
    assert output == "spark-1.local: nothing to remove\nspark-2.local: nothing to remove\n"
    # What is deployed stays in any case.
    run("--keep", "0", exit_code=2)


def test_only_hosts_with_something_to_remove_do_so_and_failures_are_named(run) -> None:
    output, commands = run("--yes")
    assert output.endswith("spark-1.local: 2.3 GiB freed\n")
    assert commands == [
        ("spark-1.local", "plan --keep 2"),
        ("spark-1.local", "remove --digest d1 --keep 2"),
        ("spark-2.local", "plan --keep 2"),
    ]
    output, _ = run("--yes", removal=HALF, exit_code=1)
    assert "spark-1.local: engine abc stays: Permission denied" in output
    output, _ = run("--yes", second=SILENT, exit_code=2)
    assert "spark-2.local: no connection: timed out" in output
    assert "spark-1.local: 2.3 GiB freed" in output


def test_without_a_yes_nothing_is_removed(run, monkeypatch: pytest.MonkeyPatch) -> None:
    output, _ = run(exit_code=2)
    assert "--yes removes, --dry only shows" in output

    def ctrl_c(_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None

    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(common, "sys", SimpleNamespace(stdin=terminal))
    monkeypatch.setattr(click, "confirm", ctrl_c)
    output, commands = run(exit_code=130)
    assert "Ended by Ctrl-C. Nothing was changed.\n" in output
    assert [words for _, words in commands if "remove" in words] == []
    monkeypatch.setattr(click, "confirm", lambda _: True)
    assert ("spark-1.local", "remove --digest d1 --keep 2") in run()[1]
