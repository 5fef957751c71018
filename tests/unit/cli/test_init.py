"""`lockstep init`: the owner's folder, what is said of its hosts, and what it refuses."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import Result
from forked_pyinfra import pyinfra
from over_ssh import invoke_lockstep

from lockstep.inventory import inventory_file

SSH = """\
echo "$*" >> "$(dirname "$0")/calls"
echo 'Host key verification failed.' >&2
exit 255
"""
FILES = [".gitignore", "config.py", "deploy.py", "inventory.py", "recipes", "recipes/README.md"]


def init(folder: Path, *words: str) -> Result:
    """`lockstep init WORDS`, where no host key is known."""
    return invoke_lockstep(folder.parent, SSH, "init", *words, "--folder", str(folder))


def test_it_writes_a_folder_that_plan_and_deploy_can_use(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    result = init(folder, "spark-1.local", "10.0.0.2", "--user", "anna")
    assert result.exit_code == 1, result.output
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == FILES
    plans = inventory_file.load(folder / "inventory.py")
    assert [plan.name for plan in plans] == ["spark-1.local", "10.0.0.2"]
    assert {plan.settings.operators for plan in plans} == {("anna",)}
    assert [model.name for model in plans[0].models] == ["qwen", "mistral", "mistral-vllm"]
    lock = inventory_file.lock_path(folder / "inventory.py", plans)
    assert lock == folder / "inventory.lock.yaml"
    _, data = inventory_file.load_merged(folder / "inventory.py")
    assert data["10.0.0.2"]["ssh_user"] == "anna"


def test_of_each_host_it_says_what_is_missing_and_then_what_is_next(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    output = init(folder, "spark-1.local", "spark-2.local", "--user", "anna").output
    for name in ("spark-1.local", "spark-2.local"):
        assert f"{name}: something is missing\n  missing: its host key is not known here" in output
        assert f"`ssh anna@{name}` shows the fingerprint" in " ".join(output.split())
    assert output.partition("Next:\n")[2].split("\n")[:4] == [
        f"  cd {folder}",
        "  lockstep plan          # the models of each Spark, and whether they fit",
        "  lockstep deploy --dry  # what a deploy would change",
        "  lockstep deploy        # from DGX OS to serving",
    ]


def test_no_host_key_is_ever_accepted_for_anybody(tmp_path: Path) -> None:
    init(tmp_path / "mine", "spark-1.local")
    calls = (tmp_path / "bin/calls").read_text().splitlines()
    assert calls
    assert all("-o StrictHostKeyChecking=yes -o BatchMode=yes" in call for call in calls)


def test_without_a_user_ssh_itself_decides(tmp_path: Path) -> None:
    init(tmp_path / "mine", "spark-1.local")
    assert "ssh_user" not in (tmp_path / "mine/inventory.py").read_text()


def test_the_same_command_again_looks_only(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    init(folder, "spark-1.local")
    (folder / "recipes/own.yaml").write_text("model: mine\n")
    again = init(folder, "spark-1.local")
    assert "has these files already; only the Sparks are looked at" in again.stdout
    assert "spark-1.local: " in again.stdout
    # Another host would be another inventory.
    assert init(folder, "spark-2.local").exit_code == 2


def test_of_files_that_cannot_all_be_written_none_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, text: str, **how: str) -> int:
        if path.name == "config.py":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, **how)

    monkeypatch.setattr(Path, "write_text", full)
    result = init(tmp_path / "mine", "spark-1.local")
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "the files cannot be written; found No space left on device" in message
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("existing_file", ["inventory.py", "deploy.py", "config.py", "recipes"])
def test_nothing_is_replaced(existing_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.joinpath(existing_file).symlink_to("nowhere")
    result = init(folder, "spark-1.local")
    assert result.exit_code == 2
    assert f"some of it is there already; found {existing_file}." in " ".join(result.stderr.split())
    assert [path.name for path in folder.iterdir()] == [existing_file]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spark-1;id"], "is no name"),
        (["-spark", "x"], "No such option"),
        (["spark-1.local", "spark-1.local"], "a host is named twice"),
        (["spark-1.local", "--user", "an na"], "operators"),
        ([], "Missing argument 'HOST...'"),
    ],
)
def test_wrong_use_writes_nothing(words: list[str], message: str, tmp_path: Path) -> None:
    result = init(tmp_path / "mine", *words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "mine").exists()


def test_pyinfra_too_has_the_defaults_and_over_them_what_the_owner_says(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    init(folder, "spark-1.local", "--user", "anna")
    (folder / "group_data").mkdir()
    (folder / "group_data/all.py").write_text('python = "3.13"\nboot = "last"\n')
    (folder / "group_data/inventory.py").write_text('boot = "mistral"\nlock = "my.lock.yaml"\n')
    result = pyinfra("--json", "inventory.py", "debug-inventory", folder=folder)
    (host,) = json.loads(result.stdout.splitlines()[-1])
    expected_data = {
        # Without these two a new host key would be accepted, and nothing would run as root.
        "ssh_strict_host_key_checking": "yes",
        "_sudo": True,
        "python": "3.13",
        "boot": "mistral",
        "lock": "my.lock.yaml",
        "ssh_user": "anna",
    }
    assert {key: host["data"][key] for key in expected_data} == expected_data
    assert list(host["data"]["models"]) == ["qwen", "mistral", "mistral-vllm"]


def test_pyinfra_ends_before_it_executes_an_inventory_that_is_no_python(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    init(folder, "spark-1.invalid")
    folder.joinpath("inventory.py").write_text("inventory = [\n")
    result = pyinfra("-y", "inventory.py", "deploy.py", folder=folder)
    assert result.returncode == 2
    assert "inventory.py:1: not valid Python" in result.stderr
    assert "Traceback" not in result.stderr
