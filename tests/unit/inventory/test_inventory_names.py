"""Names in an inventory: at its top, of hosts and group data, and those of earlier versions."""

from pathlib import Path

import pytest
from a_spark import spark

from lockstep.checkpoints.known_checkpoints import load_knowledge
from lockstep.core.errors import CatalogueError, InventoryError
from lockstep.inventory.inventory_file import load

IMPORT = "from lockstep.deploy.checked import checked\n"
HOSTS = 'site = checked(__file__, [("127.0.0.1", {})])\n'
ONE_GROUP = "one group of hosts, 'site', and lists of some of its hosts. Call it"


def refusal(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The refusal of an inventory, which raises it or ends the program."""
    path.write_text(text)
    with pytest.raises((InventoryError, SystemExit)) as fault:
        load(path)
    message = str(fault.value) if isinstance(fault.value, InventoryError) else ""
    return message or " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            "targets = {}\n",
            "an inventory, and it is called 'models' now; allowed: 'models' in a host",
        ),
        (
            'if True:\n    ssh_user: str = "anna"\n',
            "site.py:3: nothing reads 'ssh_user' at the top",
        ),
        # pyinfra would take each letter for a host.
        ('names = ("127.0.0.1",)\n', f"('127.0.0.1',); allowed: {ONE_GROUP} `_names` (`import"),
        (
            'west = [("10.0.0.9", {"proxy": {"http": "http://me:secret@proxy"}})]\n',
            f"'west' for a group of hosts; found a list of 1; allowed: {ONE_GROUP} `_west`",
        ),
    ],
)
def test_a_name_that_only_pyinfra_would_read_is_refused(lines: str, error: str, tmp_path, capsys):
    message = refusal(tmp_path / "site.py", f"{IMPORT}{lines}{HOSTS}", capsys)
    assert error in message and "secret" not in message


def test_a_second_group_behind_the_first_and_its_data_are_refused(tmp_path: Path, capsys):
    west = 'west = ["127.0.0.1"]\n'
    message = refusal(tmp_path / "site.py", f"{IMPORT}{HOSTS}{west}", capsys)
    assert message.startswith("site.py:3: 'west' comes after `checked(…)`, which cannot look at it")
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/west.py").write_text("copying = False\n")
    message = refusal(tmp_path / "site.py", f"{IMPORT}{west}{HOSTS}", capsys)
    assert message.startswith("site.py: group_data/west.py is read by the deploy and by no other")


def test_names_that_are_no_hosts_and_groups_of_the_files_own_hosts_are_accepted(tmp_path: Path):
    path = tmp_path / "site.py"
    path.write_text(
        f"{IMPORT}from group_data.all import models\n"
        '_names = ("127.0.0.1",)\nfirst = ["127.0.0.1"]\nnumbers = [1, 2]\nnone = []\n'
        "def of(name):\n    models = {}\n    return models\n"
        "all_of_them = {name: [lock for lock in ()] for name in first}\n"
        f"{HOSTS}"
    )
    (plan,) = load(path)
    assert plan.name == "127.0.0.1"


def test_hosts_that_are_no_list_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = f'{IMPORT}inventory = checked(__file__, {{"s1": {{"prot": 1}}}})\n'
    message = refusal(tmp_path / "inventory.py", text, capsys)
    assert message.startswith("inventory.py: the hosts must be a list; found dict. Write [")


@pytest.mark.parametrize("call", ["{}", "checked(__file__, {})"])
def test_what_is_no_host_is_named_with_its_line_beside_other_mistakes(call: str, tmp_path, capsys):
    hosts = '[\n    ("s1",),\n    "s2",\n    7,\n    ("s3", "72"),\n    ("s4", {"prot": 1}),\n]'
    text = f"{IMPORT}inventory = {call.format(hosts)}\n"
    message = refusal(tmp_path / "inventory.py", text, capsys)
    for fault in (
        "inventory.py:3: host 1 of the list is no host; found tuple of 1.",
        "inventory.py:5: host 3 of the list is no host; found 7.",
        "inventory.py:6: host 4 of the list is no host; found ('s3', text).",
        "inventory.py:7: unknown key 'prot'.",
        "4 mistakes.",
    ):
        assert fault in message


def test_group_data_that_no_inventory_reads_are_refused(tmp_path: Path, capsys):
    for name in ("other.py", "group_data/other.py", "group_data/_common.py", "group_data/spark.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    path = tmp_path / "inventory.py"
    message = refusal(path, "inventory = ['10.0.0.1']\n", capsys)
    assert message.startswith("group_data/spark.py: no inventory reads this file. Call it all.py")
    (tmp_path / "group_data/spark.py").unlink()
    assert load(path)


def test_a_former_name_is_refused_with_the_present_one(tmp_path: Path):
    with pytest.raises(InventoryError, match=r"models\.q\.floor is called `minimum` now\. Rename"):
        spark(models={"q": {"recipe": "qwen", "unit": "vllm", "floor": {}}})
    inventory = tmp_path / "site.py"
    inventory.write_text("from group_data.all import targets as _targets\nsite = []\n")
    with pytest.raises(InventoryError, match=r":1: the file fails.* It is called 'models' now"):
        load(inventory)


def test_a_catalogue_of_before_is_told_the_key_of_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.yaml").write_text("models: {}\n")
    with pytest.raises(CatalogueError, match="yaml:1: `models` is called `checkpoints` now"):
        load_knowledge(tmp_path)
