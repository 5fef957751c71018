"""`lockstep gc`: what would go from each Spark, a question, and what went."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from an_inventory import TWO
from click.testing import Result
from over_ssh import invoke_lockstep

from lockstep.cli import common

HOSTS = TWO
PLAN = (
    '{"items": [{"kind": "engine", "name": "abc", "bytes": 2500000000},'
    ' {"kind": "image", "name": "x@sha256:1", "bytes": 700000}],'
    ' "dropped": [1], "digest": "d1"}'
)
NOTHING = '{"items": [], "dropped": [], "digest": "d0"}'
GONE = '{"removed": [{"kind": "engine", "name": "abc", "bytes": 2500000000}], "failed": []}'
HALF = (
    '{"removed": [], "failed":'
    ' [{"kind": "engine", "name": "abc", "bytes": 1, "why": "Permission denied"}]}'
)
# Notes every call, and answers as the host that it was asked for.
SSH = """\
for word in "$@"; do host=$command; command=$word; done
echo "$host $command" >> "$(dirname "$0")/calls"
case "$host $command" in
  spark-2.local*) {second} ;;
  *" plan "*) echo '{plan}' ;;
  *) echo '{gone}' ;;
esac
"""
PROGRAM = "sudo -n /usr/bin/python3 /usr/local/lib/lockstep cleanup"


def run(
    path: Path,
    *words: str,
    plan: str = PLAN,
    removal: str = GONE,
    second: str = f"echo '{NOTHING}'",
    exit_code: int = 0,
) -> Result:
    text = SSH.replace("{plan}", plan).replace("{gone}", removal).replace("{second}", second)
    result = invoke_lockstep(path.parent, text, "gc", "-i", str(path), *words)
    assert result.exit_code == exit_code, result.output
    return result


def calls(path: Path) -> list[str]:
    return sorted((path.parent / "bin/calls").read_text().splitlines())


def test_a_dry_run_shows_each_thing_with_its_size_and_removes_nothing(inventory: Path) -> None:
    result = run(inventory, "--dry", "--keep", "3")
    assert [" ".join(line.split()) for line in result.output.splitlines()] == [
        "spark-1.local: 2.3 GiB",
        "what name size",
        "engine abc 2.3 GiB",
        "image x@sha256:1 683.6 KiB",
        "spark-2.local: nothing to remove",
    ]
    assert calls(inventory) == [
        f"spark-1.local {PROGRAM} plan --keep 3",
        f"spark-2.local {PROGRAM} plan --keep 3",
    ]
    # With nothing to remove nobody is asked.
    result = run(inventory, plan=NOTHING)
    output = "spark-1.local: nothing to remove\nspark-2.local: nothing to remove\n"
    assert (result.exit_code, result.output) == (0, output)
    # What is deployed stays in any case.
    run(inventory, "--keep", "0", exit_code=2)


def test_only_hosts_with_something_to_remove_do_so_and_failures_are_named(inventory: Path) -> None:
    result = run(inventory, "--yes")
    assert result.output.endswith("spark-1.local: 2.3 GiB freed\n")
    assert calls(inventory) == [
        f"spark-1.local {PROGRAM} plan --keep 2",
        f"spark-1.local {PROGRAM} remove --digest d1 --keep 2",
        f"spark-2.local {PROGRAM} plan --keep 2",
    ]
    result = run(inventory, "--yes", removal=HALF, exit_code=1)
    assert "spark-1.local: engine abc stays: Permission denied" in result.output
    result = run(inventory, "--yes", second="echo timed out >&2; exit 255", exit_code=2)
    assert "spark-2.local: no connection: timed out" in result.output
    assert "spark-1.local: 2.3 GiB freed" in result.output


def test_without_a_yes_nothing_is_removed(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(inventory, exit_code=2)
    assert "--yes removes, --dry only shows" in result.output

    def ctrl_c(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None

    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(common, "sys", SimpleNamespace(stdin=terminal))
    monkeypatch.setattr(click, "confirm", ctrl_c)
    result = run(inventory, exit_code=130)
    assert result.stderr == "Ended by Ctrl-C. Nothing was changed.\n"
    assert [line for line in calls(inventory) if "remove" in line] == []
