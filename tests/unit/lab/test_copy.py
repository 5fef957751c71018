"""A lab whose hosts begin as those of another one are."""

import contextlib
from pathlib import Path

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


def test_a_copy_lies_on_its_sources_until_it_is_wiped_and_is_down(labs, tmp_path: Path) -> None:
    first, second = labs
    third = Lab("third", tmp_path / "third", tmp_path / "cache")
    copy.make(first, second)
    copy.make(second, third)
    # It is not up, whatever the other one was, and its host has the keys of the first one's.
    assert not second.description.exists()
    assert disk.host_keys(third, SPARK1) == ["10.77.0.11,spark1 ssh-rsa AAAA"]
    paths = tuple(lab.host_folder(SPARK1) / "upper" for lab in (second, first))
    assert disk.below(third, SPARK1) == paths
    assert (copy.copies(first), copy.copies(second)) == (["second", "third"], ["third"])
    disk.wipe(third, SPARK1)
    assert disk.below(third, SPARK1) == ()
    assert (copy.copies(first), copy.copies(second)) == (["second"], [])


def test_a_source_is_down_and_neither_comes_up_nor_is_deleted_under_its_copy(labs, monkeypatch):
    first, second = labs
    monkeypatch.setattr(heal, "supervisor_alive", lambda _: True)
    with pytest.raises(LabError, match="lab 'first' is up; its disks change"):
        copy.make(first, second)
    monkeypatch.setattr(heal, "supervisor_alive", lambda _: False)
    copy.make(first, second)
    with pytest.raises(LabError, match="there is a lab 'second' already"):
        copy.make(first, second)
    monkeypatch.setattr(up, "require_root", lambda: None)
    monkeypatch.setattr(up, "_only_one", contextlib.nullcontext)
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
