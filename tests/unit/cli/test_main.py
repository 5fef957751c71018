"""The `lockstep` command itself."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main


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
