"""The `lockstep` command itself."""

from click.testing import CliRunner

from lockstep.cli.main import GROUPS, main


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    for words, answer in (
        (("stauts",), "Did you mean 'status'?"),
        (("key", "lst"), "Did you mean 'list'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
    ):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2
        assert answer in result.output


def test_help_has_each_command_once_and_whole_sentences_at_80_columns() -> None:
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    commands = [line.split()[0] for line in output.splitlines() if line.startswith("  ")]
    grouped_names = [name for names in GROUPS.values() for name in names]
    assert set(main.modules) <= set(grouped_names) and len(grouped_names) == len(set(grouped_names))
    assert [name for name in commands if name in grouped_names] == [
        name for name in grouped_names if name in main.modules
    ]
    assert "..." not in output.partition("Options:")[2]
