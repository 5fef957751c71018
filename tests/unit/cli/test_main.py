"""The `lockstep` command itself, and `lockstep help`: the pages of docs, whole or by section."""

from click.testing import CliRunner

from lockstep.cli import help as help_command
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


def test_help_has_each_command_once() -> None:
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    commands = [line.split()[0] for line in output.splitlines() if line.startswith("  ")]
    grouped_names = [name for names in GROUPS.values() for name in names]
    assert set(main.modules) <= set(grouped_names) and len(grouped_names) == len(set(grouped_names))
    shown_names = [name for name in commands if name in grouped_names]
    assert shown_names == [name for name in grouped_names if name in main.modules]


PAGE = """\
# One

## First part
```python
# inventories/spark.py
```
### Inside, and more
deep
## Second
end
"""


def show_help(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["help", *words])
    assert result.exit_code == exit_code
    return result.output


def test_every_page_is_listed_with_its_subject() -> None:
    lines = dict(line.split(maxsplit=1) for line in show_help().splitlines())
    assert lines["drift"] == "Drift" and lines["evidence/cuda"].startswith("Evidence")


def test_a_page_or_a_section_is_shown_whole_and_an_absent_one_answered(tmp_path, monkeypatch):
    (tmp_path / "one.md").write_text(PAGE)
    monkeypatch.setattr(help_command, "DOCS", tmp_path)
    for section, part in (
        ((), PAGE),
        (("first-part",), PAGE[PAGE.index("## First") : PAGE.index("## Second")]),
        (("inside-and-more",), "### Inside, and more\ndeep\n"),
    ):
        assert show_help("one", *section).rstrip() == part.rstrip()
    output = show_help("two", exit_code=2)
    assert "no such page; found 'two'; allowed: one." in output
    assert "Did you mean 'second'?" in show_help("one", "secnd", exit_code=2)
