"""The inventory of a command: where it is found, and what is said where it is not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from a_probe import program
from an_inventory import ANNA, written
from click.testing import CliRunner, Result

from lockstep.cli import inventory_option, plan
from lockstep.cli.inventory_option import find_inventory
from lockstep.cli.main import main
from lockstep.clients.programs import PROGRAMS
from lockstep.core.errors import InventoryError

REPOSITORY = Path(__file__).parents[3]
#: Every command that has hosts to work on, and what else it must be given.
COMMANDS: dict[str, str] = {
    **dict.fromkeys(("adopt", "alert test", "backup check", "backup list", "backup now"), ""),
    "backup restore": "spark1",
    "bench gate": "",
    "bench run": "spark1",
    "blackbox": "spark1",
    **dict.fromkeys((f"client {name}" for name in ("check", *PROGRAMS)), ""),
    **dict.fromkeys(("cluster check", "cluster status", "deploy", "diff", "evidence", "gc"), ""),
    "key add": "anna",
    "key list": "",
    "key revoke": "anna",
    **dict.fromkeys(("lock", "log", "open", "plan", "remove", "rollback", "status"), ""),
    "switch": "qwen",
    "update": "",
}
# It does without one: the hub is asked, and no host.
WITHOUT = ("recipe new",)
every = pytest.mark.parametrize(("command", "rest"), COMMANDS.items(), ids=COMMANDS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a person is in."""
    monkeypatch.delenv(inventory_option.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(folder: Path, *names: str) -> None:
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
    write_files(here, *names)
    assert find_inventory().name == which


def test_of_several_none_is_guessed(here: Path) -> None:
    write_files(here, "inventories/a.py", "inventories/b.py")
    with pytest.raises(InventoryError) as no:
        find_inventory()
    assert str(no.value) == (
        "more than one inventory is here; found inventories/a.py, inventories/b.py. "
        "Name it with -i FILE, or set LOCKSTEP_INVENTORY."
    )


def test_the_checkout_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert find_inventory() == Path("inventories/spark.py")
    monkeypatch.chdir(REPOSITORY / "docs")
    assert find_inventory() == REPOSITORY / "inventories/spark.py"


def run(*words: str, variable: str | None = None) -> Result:
    return CliRunner().invoke(main, words, env={inventory_option.VARIABLE: variable})


def error_text(done: Result) -> str:
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
    assert sorted(commands(main, click.Context(main))) == sorted((*COMMANDS, *WITHOUT))


@every
def test_where_none_is_each_command_says_where_it_looked(
    here: Path, command: str, rest: str
) -> None:
    done = run(*command.split(), *rest.split())
    assert done.exit_code == 2
    looked = f"looked for inventory.py and inventories/*.py in {here}. Name it with -i FILE"
    assert error_text(done).startswith("lockstep: no inventory is found: looked for")
    assert looked in error_text(done)


def test_a_file_that_is_not_there_is_named() -> None:
    for done in (run("plan", "-i", "gone.py"), run("plan", variable="gone.py")):
        assert done.exit_code == 2
        assert error_text(done).startswith(
            "lockstep: gone.py: there is no such inventory. Name it with"
        )


@every
def test_the_old_place_of_the_inventory_is_answered_with_the_new(command: str, rest: str) -> None:
    done = run(*command.split(), "old/spark.py", *rest.split())
    assert done.exit_code == 2
    typed = f"lockstep {command} -i old/spark.py {rest}".strip()
    assert error_text(done) == f"lockstep: the inventory is an option now. Type `{typed}`."


BROKEN = {
    "": "the inventory defines no list of hosts named 'bad'",
    "bad = []": "the inventory defines no list of hosts named 'bad'",
    "bad = [": "bad.py:1: not valid Python: '[' was never closed",
    "bad = [1 / 0]": "the file fails when it is read; found ZeroDivisionError",
    "\0": "not valid Python: source code string cannot contain null bytes",
    'bad = [("a", {"ssh_usr": "b"})]': "unknown key 'ssh_usr'",
}


@pytest.mark.parametrize(
    ("command", "text"),
    [*(("plan", text) for text in BROKEN), *((command, "bad = [") for command in COMMANDS)],
)
def test_one_that_cannot_be_used_is_one_sentence(here: Path, command: str, text: str) -> None:
    (here / "bad.py").write_text(text)
    done = run(*command.split(), *COMMANDS[command].split(), "-i", "bad.py")
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert BROKEN[text] in error_text(done) and done.stdout == ""
    assert error_text(done).startswith("lockstep: ")


#: How each command is told of one host.
ONE_HOST = {
    **dict.fromkeys(("adopt", "alert test", "backup check", "backup list", "backup now"), "{}"),
    **dict.fromkeys(("backup restore", "bench run", "blackbox"), "{}"),
    **dict.fromkeys(("client check", "client claude"), "--host {}"),
    **dict.fromkeys(("bench gate", "deploy", "diff", "evidence", "gc", "log"), "--limit {}"),
    **dict.fromkeys(("open", "remove", "status"), "--limit {}"),
    "switch": "qwen --limit {}",
}


@pytest.mark.parametrize(("command", "rest"), ONE_HOST.items(), ids=ONE_HOST)
def test_a_host_that_the_inventory_does_not_have_is_named(
    here: Path, command: str, rest: str
) -> None:
    written(here, {"spark1": ANNA}, "inventory")
    done = run(*command.split(), *rest.format("spark9").split())
    assert done.exit_code == 2
    assert "no such host; found spark9" in error_text(done)


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        (">&-", 0, ""),
        (">/dev/full", 2, "lockstep: there is no space left where the output goes\n"),
    ],
)
def test_an_output_that_takes_nothing_is_no_traceback(output: str, code: int, said: str) -> None:
    words = shlex.join([sys.executable, "-m", "lockstep.cli.main", "recipe", "list"])
    done = subprocess.run(
        ["sh", "-c", f"{words} {output}"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, said)


#: Commands that print much, by click, rich and a pager, and their exit codes; two ask a Spark.
PRINTING = {
    **dict.fromkeys(("--help", "help security", "plan", "plan --json", "recipe list"), 0),
    **{"recipe show qwen3.6-35b-a3b-fp8": 0, "deploy --dry": 1, "status": 2},
}


@pytest.mark.parametrize("words", PRINTING)
def test_a_pipe_that_is_closed_changes_no_exit_code(here: Path, words: str) -> None:
    """As `| head -1` does; the Spark does not answer."""
    program(here / "bin", "ssh", "echo no route to host >&2; exit 255")
    written(here, {"spark1": ANNA}, "inventory")
    reading, writing = os.pipe()
    os.close(reading)
    # A process of its own: what its interpreter says as it ends counts, too.
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.cli.main", *words.split()],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        env={"PATH": f"{here / 'bin'}:/usr/bin:/bin", "XDG_STATE_HOME": str(here)},
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (PRINTING[words], "")


def test_ctrl_c_is_a_sentence_and_130(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "make", interrupted)
    written(here, {"spark1": ANNA}, "inventory")
    done = run("plan")
    assert (done.exit_code, done.stderr) == (130, "Ended by Ctrl-C.\n")
