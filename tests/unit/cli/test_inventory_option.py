"""The inventory of a command: where it is found, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from lockstep.cli import inventory_option
from lockstep.cli.inventory_option import found
from lockstep.cli.main import main
from lockstep.core.errors import InventoryError
from lockstep.inventory.inventory_file import REPOSITORY

#: Every command that has hosts to work on, and what else it must be given.
COMMANDS: dict[str, str] = {
    **dict.fromkeys(("adopt", "alert test", "backup check", "backup list", "backup now"), ""),
    "backup restore": "spark1",
    "bench gate": "",
    "bench run": "spark1",
    "blackbox": "spark1",
    "client": "claude",
    **dict.fromkeys(("cluster check", "cluster status", "deploy", "diff", "evidence", "gc"), ""),
    "key add": "anna",
    "key list": "",
    "key revoke": "anna",
    **dict.fromkeys(("lock", "log", "open", "plan", "remove", "rollback", "status"), ""),
    "switch": "qwen",
    "update": "",
}
every = pytest.mark.parametrize(("command", "rest"), COMMANDS.items(), ids=COMMANDS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a person is in."""
    monkeypatch.delenv(inventory_option.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")


@pytest.mark.parametrize(
    ("names", "which"),
    [
        (["inventory.py", "inventories/home.py"], "inventory.py"),
        (["inventories/home.py", "inventories/lab.py", "inventories/lab_two.py"], "home.py"),
        (["inventories/home.py", "inventories/home.md"], "home.py"),
    ],
)
def test_the_only_one_is_found(here: Path, names: list[str], which: str) -> None:
    made(here, *names)
    assert found().name == which


def test_of_several_none_is_guessed(here: Path) -> None:
    made(here, "inventories/a.py", "inventories/b.py")
    with pytest.raises(InventoryError) as no:
        found()
    assert str(no.value) == (
        "more than one inventory is here; found inventories/a.py, inventories/b.py. "
        "Name it with -i FILE, or set LOCKSTEP_INVENTORY."
    )


def test_the_checkout_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert found() == Path("inventories/spark.py")
    monkeypatch.chdir(REPOSITORY / "docs")
    assert found() == REPOSITORY / "inventories/spark.py"


def run(*words: str, variable: str | None = None) -> Result:
    return CliRunner().invoke(main, words, env={inventory_option.VARIABLE: variable})


def said(done: Result) -> str:
    return " ".join(done.output.split())


def commands(group: click.Group, context: click.Context, *above: str) -> Iterator[str]:
    """The words of every command that takes an inventory."""
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        if isinstance(each, click.Group):
            yield from commands(each, context, *above, name)
        elif each and any(param.name == "inventory" for param in each.params):
            yield " ".join((*above, name))


def test_no_command_is_forgotten_here() -> None:
    assert isinstance(main, click.Group)
    assert sorted(commands(main, click.Context(main))) == sorted(COMMANDS)


@every
def test_where_none_is_each_command_says_where_it_looked(
    here: Path, command: str, rest: str
) -> None:
    done = run(*command.split(), *rest.split())
    assert done.exit_code == 2
    looked = f"looked for inventory.py and inventories/*.py in {here}. Name it with -i FILE"
    assert said(done).startswith("lockstep: no inventory is found: looked for")
    assert looked in said(done)


@every
def test_a_file_that_is_not_there_is_named(command: str, rest: str) -> None:
    words = (*command.split(), *rest.split())
    for done in (run(*words, "-i", "gone.py"), run(*words, variable="gone.py")):
        assert done.exit_code == 2
        assert said(done).startswith("lockstep: gone.py: there is no such inventory. Name it with")


@every
def test_the_old_place_of_the_inventory_is_answered_with_the_new(command: str, rest: str) -> None:
    done = run(*command.split(), "old/spark.py", *rest.split())
    assert done.exit_code == 2
    typed = f"lockstep {command} -i old/spark.py {rest}".strip()
    assert said(done) == f"lockstep: the inventory is an option now. Type `{typed}`."


def test_an_engine_at_a_url_is_measured_without_an_inventory() -> None:
    done = run("bench", "http://127.0.0.1:9", "--suite", "decode")
    assert done.exit_code == 2 and "no engine answers there" in said(done)
