"""`lockstep init`: the owner's folder, what is said of its hosts, and what it refuses."""

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


def test_it_writes_a_folder_and_says_what_is_missing_and_what_is_next(tmp_path: Path) -> None:
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
    for name in ("spark-1.local", "10.0.0.2"):
        assert f"{name}: something is missing\n" in result.output
        assert f"`ssh anna@{name}` shows the fingerprint" in " ".join(result.output.split())
    next_steps = result.output.partition("Next:\n")[2]
    assert next_steps.startswith(f"  cd {folder}\n  lockstep plan  ")
    # No host key is ever accepted for anybody.
    calls = (tmp_path / "bin/calls").read_text().splitlines()
    assert calls
    assert all("-o StrictHostKeyChecking=yes -o BatchMode=yes" in call for call in calls)


def test_the_same_command_again_looks_only(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    init(folder, "spark-1.local")
    # Without a user ssh itself decides.
    assert "ssh_user" not in (folder / "inventory.py").read_text()
    (folder / "recipes/own.yaml").write_text("model: mine\n")
    again = init(folder, "spark-1.local")
    assert "has these files already; only the Sparks are looked at" in again.stdout
    # Another host would be another inventory.
    assert init(folder, "spark-2.local").exit_code == 2


def test_nothing_is_replaced_and_of_files_that_cannot_all_be_written_none_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("inventory.py", "recipes"):
        folder = tmp_path / name
        folder.mkdir()
        folder.joinpath(name).symlink_to("nowhere")
        result = init(folder, "spark-1.local")
        assert result.exit_code == 2
        assert f"some of it is there already; found {name}." in " ".join(result.stderr.split())
        assert [path.name for path in folder.iterdir()] == [name]
    write = Path.write_text

    def full(path: Path, text: str, **how: str) -> int:
        if path.name == "config.py":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, **how)

    monkeypatch.setattr(Path, "write_text", full)
    result = init(tmp_path / "mine", "spark-1.local")
    assert result.exit_code == 2 and "found No space left on device" in result.stderr
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == []


def test_wrong_use_writes_nothing(tmp_path: Path) -> None:
    for words, message in (
        (["spark-1;id"], "is no name"),
        (["spark-1.local", "spark-1.local"], "a host is named twice"),
        (["spark-1.local", "--user", "an na"], "operators"),
    ):
        result = init(tmp_path / "mine", *words)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
        assert not (tmp_path / "mine").exists()


def test_pyinfra_has_the_owners_data_over_defaults_and_no_broken_inventory(tmp_path: Path) -> None:
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
    folder.joinpath("inventory.py").write_text("inventory = [\n")
    result = pyinfra("-y", "inventory.py", "deploy.py", folder=folder)
    assert result.returncode == 2
    assert "inventory.py:1: not valid Python" in result.stderr
    assert "Traceback" not in result.stderr
