"""Names in an inventory: at its top, of hosts and group data, of pyinfra, of earlier versions."""

from dataclasses import fields
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest
from a_spark import spark
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.connectors import get_all_connectors

from lockstep.checkpoints.known_checkpoints import load_knowledge
from lockstep.core.errors import CatalogueError, InventoryError
from lockstep.inventory import pyinfra_keys
from lockstep.inventory.inventory_file import load
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import AnyPort

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


def test_pyinfras_own_names_are_those_that_it_reads() -> None:
    read = {name for name, _ in all_global_arguments() if name.startswith("_")}
    for connector in get_all_connectors().values():
        read |= set(getattr(connector, "data_cls", type).__annotations__)
    # Of its connector for tests.
    read = {name for name in read if not name.startswith("fake_")}
    # Read as `host.data.…` by two connectors, which set them.
    assert read | {"docker_image", "chroot_directory"} == pyinfra_keys.KEYS
    assert all(name.startswith(pyinfra_keys.PREFIXES) for name in read)


def test_the_types_of_a_login_are_those_that_pyinfra_states() -> None:
    stated_types = {**get_type_hints(get_all_connectors()["ssh"].data_cls), "ssh_port": AnyPort}
    plain = {key: get_origin(kind) or kind for key, kind in pyinfra_keys.LOGIN.items()}
    assert {**plain, "ssh_port": AnyPort} == stated_types


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ssh_user", None, "ssh_user must be text"),
        ("ssh_port", "22", "ssh_port must be a whole number"),
        ("ssh_allow_agent", "no", "ssh_allow_agent must be true or false"),
        # What may hold a password is not shown.
        ("ssh_password", 73519, "ssh_password must be text"),
        ("ssh_paramiko_connect_kwargs", "password=73519", "must be a mapping"),
    ],
)
def test_a_login_that_pyinfra_would_stumble_over_is_refused(key: str, value: object, message: str):
    with pytest.raises(InventoryError) as error:
        spark(**{key: value})
    assert error.value.summary.endswith(message)
    assert "73519" not in str(error.value)


def test_none_of_our_keys_has_a_name_of_pyinfras() -> None:
    assert pyinfra_keys.KEYS.isdisjoint(field.name for field in fields(Settings))


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("ssh_usr", "Did you mean 'ssh_user'?"),
        ("_sduo", "Did you mean '_sudo'?"),
        # It begins as one of ours and of pyinfra's.
        ("docker_user", "Did you mean 'docker_users'?"),
        ("local_anything", ""),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_one(key: str, remedy: str) -> None:
    with pytest.raises(InventoryError) as error:
        spark(**{key: "x"})
    assert error.value.summary == f"unknown key {key!r}"
    assert error.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("name", "private"),
    [("__name__", True), ("_models", True), ("_sudo", False), ("_sduo", False), ("ssh_usr", False)],
)
def test_a_file_of_group_data_may_have_names_of_its_own(name: str, private: bool) -> None:
    assert pyinfra_keys.is_private(name) is private
