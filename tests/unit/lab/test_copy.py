"""A lab whose hosts begin as those of another one are."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from lab import cli, copy, heal, up
from lab.core.errors import LabError
from lab.core.progress import Steps
from lab.core.state import Host, Lab
from lab.host import disk

SPARK1 = Host(1)


@pytest.fixture
def labs(tmp_path: Path) -> tuple[Lab, Lab]:
    """A lab whose host has installed things, and a lab that does not exist yet."""
    first, second = (Lab(name, tmp_path / name, tmp_path / "cache") for name in ("first", "second"))
    folder = first.host_folder(SPARK1)
    for name in ("upper/etc/ssh", "docker/image", "work/incompat"):
        (folder / name).mkdir(parents=True)
    (folder / "upper/etc/ssh/ssh_host_rsa_key.pub").write_text("ssh-rsa AAAA root@spark1\n")
    (folder / "docker/image/layer").write_text("bytes")
    (folder / "base").write_text("/cache/root-1/root")
    first.key.parent.mkdir()
    first.key.write_text("key")
    (first.state / "lab.lock.yaml").write_text("lock")
    first.description.write_text("{}")
    return first, second


def test_it_is_down_and_its_hosts_keys_are_the_others_until_they_make_their_own(labs: Any) -> None:
    first, second = labs
    copy.make(first, second)
    folder = second.host_folder(SPARK1)
    # It is not up, whatever the other one was.
    assert not second.description.exists()
    assert disk.host_keys(second, SPARK1) == ["10.77.0.11,spark1 ssh-rsa AAAA"]
    own = folder / "upper/etc/ssh/ssh_host_rsa_key.pub"
    own.parent.mkdir(parents=True)
    own.write_text("ssh-rsa BBBB root@spark1\n")
    assert disk.host_keys(second, SPARK1) == ["10.77.0.11,spark1 ssh-rsa BBBB"]


def test_a_copy_of_a_copy_lies_on_both_until_it_is_wiped(labs: Any, tmp_path: Path) -> None:
    first, second = labs
    third = Lab("third", tmp_path / "third", tmp_path / "cache")
    copy.make(first, second)
    copy.make(second, third)
    paths = tuple(lab.host_folder(SPARK1) / "upper" for lab in (second, first))
    assert disk.below(third, SPARK1) == paths
    assert (copy.copies(first), copy.copies(second)) == (["second", "third"], ["third"])
    disk.wipe(third, SPARK1)
    assert disk.below(third, SPARK1) == ()
    assert (copy.copies(first), copy.copies(second)) == (["second"], [])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("unknown", "there is no lab 'first'"),
        ("up", "lab 'first' is up; its disks change"),
        ("twice", "there is a lab 'second' already"),
    ],
)
def test_what_cannot_be_copied_is_refused(labs, monkeypatch, state, words) -> None:
    first, second = labs
    if state == "unknown":
        (first.state / "hosts").rename(first.state / "elsewhere")
    if state == "twice":
        copy.make(first, second)
    monkeypatch.setattr(heal, "supervisor_alive", lambda _: state == "up")
    with pytest.raises(LabError, match=words):
        copy.make(first, second)
    with pytest.raises(LabError, match="a copy has a name of its own"):
        copy.make(first, first)


def test_what_others_lie_on_neither_comes_up_nor_is_deleted(labs, monkeypatch) -> None:
    first, second = labs
    copy.make(first, second)
    monkeypatch.setattr(up, "require_root", lambda: None)
    monkeypatch.setattr(up, "_only_one", contextlib.nullcontext)
    monkeypatch.setattr(heal, "supervisor_alive", lambda _: False)
    monkeypatch.setattr(up, "_start", lambda *_: pytest.fail("it comes up"))
    with pytest.raises(LabError, match="are also those of second"):
        up.up(first, up.LabRequest(), Steps(Console()))
    calls: list[object] = []
    monkeypatch.setattr(up, "down", lambda *_: calls.append(_))
    environment = {"LOCKSTEP_LAB_STATE": str(first.state.parent)}
    result = CliRunner().invoke(cli.down, ["--name", "first", "--delete"], env=environment)
    assert (result.exit_code, calls) == (2, [])
    assert "lockstep lab down --delete --name NAME): second" in result.output
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: None)
    disk.delete(second)
    copy.require_no_copies(first)
