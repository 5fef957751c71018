"""The inventory of a command: where it is found, and what is said where it is not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from an_inventory import ANNA, write_inventory
from click.testing import CliRunner, Result

from lockstep.cli import inventory_option
from lockstep.cli.inventory_option import find_inventory
from lockstep.cli.main import main
from lockstep.clients.programs import PROGRAMS
from lockstep.core.errors import InventoryError

REPOSITORY = Path(__file__).parents[3]
#: Every command that has hosts to work on, what else it must be given, and how it is told of one.
COMMANDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("adopt", "alert test", "backup check", "backup list"), ("", "{}")),
    "backup now": ("", "{}"),
    **dict.fromkeys(("backup restore", "bench run", "blackbox"), ("spark1", "{}")),
    **dict.fromkeys((f"client {name}" for name in ("check", *PROGRAMS)), ("", "--host {}")),
    **dict.fromkeys(("bench gate", "deploy", "diff", "evidence", "gc", "log"), ("", "--limit {}")),
    **dict.fromkeys(("open", "remove", "status"), ("", "--limit {}")),
    **dict.fromkeys(("cluster check", "cluster status", "key list", "lock", "plan"), ("", "")),
    **dict.fromkeys(("rollback", "update"), ("", "")),
    **dict.fromkeys(("key add", "key revoke"), ("anna", "")),
    "switch": ("qwen", "qwen --limit {}"),
}
# It does without one: the hub is asked, and no host.
WITHOUT = ("recipe new",)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a person is in."""
    monkeypatch.delenv(inventory_option.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")


@pytest.mark.parametrize(
    ("names", "expected_name"),
    [
        (["inventory.py", "inventories/home.py"], "inventory.py"),
        (["inventories/home.py", "inventories/lab_two.py", "inventories/home.md"], "home.py"),
    ],
)
def test_the_only_one_is_found(working_folder: Path, names: list[str], expected_name: str) -> None:
    write_files(working_folder, *names)
    assert find_inventory().name == expected_name


def test_of_several_none_is_guessed_and_the_checkout_has_its_own(working_folder, monkeypatch):
    write_files(working_folder, "inventories/a.py", "inventories/b.py")
    with pytest.raises(InventoryError) as no:
        find_inventory()
    assert str(no.value) == (
        "more than one inventory is here; found inventories/a.py, inventories/b.py. "
        "Name it with -i FILE, or set LOCKSTEP_INVENTORY."
    )
    monkeypatch.chdir(REPOSITORY)
    assert find_inventory() == Path("inventories/spark.py")
    monkeypatch.chdir(REPOSITORY / "docs")
    assert find_inventory() == REPOSITORY / "inventories/spark.py"


def run(*words: str, variable: str | None = None) -> Result:
    return CliRunner().invoke(main, words, env={inventory_option.VARIABLE: variable})


def refusal(*words: str, variable: str | None = None) -> str:
    """The one sentence of a command that ends as wrong use, with nothing on standard output."""
    result = run(*words, variable=variable)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    text = " ".join(result.output.split())
    assert text.startswith("lockstep: ")
    return text.removeprefix("lockstep: ")


def commands(group: click.Group, context: click.Context, *above: str) -> Iterator[str]:
    """The words of every command that takes an inventory."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, context, *above, name)
        elif command and any(param.name == "inventory" for param in command.params):
            yield " ".join((*above, name))


def test_no_command_is_forgotten_here() -> None:
    assert sorted(commands(main, click.Context(main))) == sorted((*COMMANDS, *WITHOUT))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_its_inventory_lacks(working_folder: Path, command: str) -> None:
    required_words, one_host = COMMANDS[command]
    words, more = command.split(), required_words.split()
    folder = f"looked for inventory.py and inventories/*.py in {working_folder}."
    message = f"no inventory is found: {folder} Name it with -i FILE"
    assert refusal(*words, *more).startswith(message)
    # The old place of the inventory.
    command_line = f"lockstep {command} -i old/spark.py {required_words}".strip()
    message = f"the inventory is an option now. Type `{command_line}`."
    assert refusal(*words, "old/spark.py", *more) == message
    (working_folder / "bad.py").write_text("bad = [")
    assert BROKEN["bad = ["] in refusal(*words, *more, "-i", "bad.py")
    if one_host:
        write_inventory(working_folder, {"spark1": ANNA}, "inventory")
        found = refusal(*words, *one_host.format("spark9").split())
        assert "no such host; found spark9" in found


BROKEN = {
    "": "the inventory defines no list of hosts named 'bad'",
    "bad = []": "bad.py: the list of hosts 'bad' is empty. Add a host: (ADDRESS, {…}).",
    "bad = [": "bad.py:1: not valid Python: '[' was never closed",
    "bad = [1 / 0]": "the file fails when it is read; found ZeroDivisionError",
    'bad = [("a", {"ssh_usr": "b"})]': "unknown key 'ssh_usr'",
}


def test_a_file_that_cannot_be_used_is_one_sentence(working_folder: Path) -> None:
    for text in BROKEN:
        (working_folder / "bad.py").write_text(text)
        assert BROKEN[text] in refusal("plan", "-i", "bad.py")
    for text in (refusal("plan", "-i", "gone.py"), refusal("plan", variable="gone.py")):
        assert text.startswith("gone.py: there is no such inventory. Name it with")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("recipe list >&-", 0, ""),
        ("recipe list >/dev/full", 2, "lockstep: there is no space left where the output goes\n"),
        # As `| head -1` does; by click, rich and a pager.
        *((f"{words} | true", 0, "") for words in ("recipe list", "plan", "help security")),
    ],
)
def test_an_output_that_takes_nothing_is_no_traceback(working_folder, words, code, message) -> None:
    write_inventory(working_folder, {"spark1": ANNA}, "inventory")
    command = f"{sys.executable} -m lockstep.cli.main {words}; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (code, message)
