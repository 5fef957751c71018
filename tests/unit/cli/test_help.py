"""`lockstep help`: the pages of docs, whole or by section."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lockstep.cli import help as command
from lockstep.cli.main import main

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


def show_help(*words: str) -> Result:
    return CliRunner().invoke(main, ["help", *words])


def test_every_page_is_listed_with_its_subject() -> None:
    lines = dict(line.split(maxsplit=1) for line in show_help().output.splitlines())
    assert lines["drift"] == "Drift" and lines["evidence/cuda"].startswith("Evidence")


def test_a_page_or_a_section_is_shown_whole_and_an_absent_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.md").write_text(PAGE)
    monkeypatch.setattr(command, "DOCS", tmp_path)
    for section, part in (
        ((), PAGE),
        (("first-part",), PAGE[PAGE.index("## First") : PAGE.index("## Second")]),
        (("inside-and-more",), "### Inside, and more\ndeep\n"),
    ):
        assert show_help("one", *section).output.rstrip() == part.rstrip()
    # What is not there is answered with what is.
    for words, message in (
        (("two",), "no such page; found 'two'; allowed: one."),
        (("one", "secnd"), "no such section of one; found 'secnd'. Did you mean 'second'?"),
    ):
        result = show_help(*words)
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
