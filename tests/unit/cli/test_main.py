"""The `lockstep` command itself."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from lockstep.cli.main import GROUPS, main


@pytest.mark.parametrize(
    ("words", "near"),
    [(("stauts",), "Did you mean 'status'?"), (("key", "lst"), "Did you mean 'list'?")],
)
def test_a_mistyped_command_is_answered_with_the_nearest(words, near):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert near in done.output


def test_a_command_that_resembles_none_is_refused():
    done = CliRunner().invoke(main, ["xyzzy"])
    assert done.exit_code == 2
    assert "No such command 'xyzzy'." in done.output


def test_the_first_help_has_each_command_once_and_whole_at_80_columns():
    told = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    listed = [line.split()[0] for line in told.splitlines() if line.startswith("  ")]
    grouped = [name for names in GROUPS.values() for name in names]
    assert set(main.modules) <= set(grouped) and len(grouped) == len(set(grouped))
    assert [name for name in listed if name in grouped] == [
        name for name in grouped if name in main.modules
    ]
    assert "..." not in told.partition("Options:")[2]
    assert told.index("Every day:") < told.index("deploy ") < told.index("Models:")


def test_the_help_of_each_group_has_whole_sentences_at_80_columns():
    context = click.Context(main)
    groups = [
        name
        for name in main.list_commands(context)
        if isinstance(main.get_command(context, name), click.Group)
    ]
    assert len(groups) > 5
    for name in groups:
        told = CliRunner().invoke(main, [name, "--help"], terminal_width=80).output
        assert "..." not in told.partition("Commands:")[2], name
