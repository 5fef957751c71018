"""Files that programs on a host replace: whole, with mode and owner, nothing left beside them."""

import os
from pathlib import Path

import pytest

from lockstep.onhost.core import atomic_files


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.fixture(autouse=True)
def other_umask():
    """The umask of whoever started the program decides nothing."""
    earlier_umask = os.umask(0o077)
    yield
    os.umask(earlier_umask)


def test_a_file_is_replaced_with_its_mode_and_nothing_stays_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old and longer")
    path.chmod(0o600)
    earlier_inode = path.stat().st_ino
    # Bytes that are no text come through.
    atomic_files.write(path, b"\xff\n".decode("utf-8", "surrogateescape"))
    assert (path.read_bytes(), mode(path)) == (b"\xff\n", 0o644)
    assert path.stat().st_ino != earlier_inode
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_on_disk_with_its_own_mode_before_it_has_its_name(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text("old")
    looks = []

    def sync(fd):
        looks.append((path.read_text(), os.pread(fd, 9, 0), os.fstat(fd).st_mode & 0o7777))

    monkeypatch.setattr(os, "fsync", sync)
    os.umask(0)
    atomic_files.write(path, "new", mode=0o640)
    assert looks == [("old", b"new", 0o640)] and mode(path) == 0o640


@pytest.mark.parametrize(("of_file", "of_folder"), [(0o600, 0o700), (0o644, 0o755)])
def test_a_missing_folder_is_as_private_as_the_file(tmp_path, of_file, of_folder):
    os.umask(0o022)
    atomic_files.write(tmp_path / "made/here/file", "", mode=of_file)
    assert mode(tmp_path / "made/here") == of_folder


def test_a_failure_leaves_what_was_there_and_nothing_more(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(LookupError):
        atomic_files.write(path, "new", owner=("no-such-account", 0))
    with pytest.raises(TypeError):
        atomic_files.write_json(path, {"a": object()})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    # An owner may be given by name or by id.
    owners = []
    monkeypatch.setattr(atomic_files.shutil, "chown", lambda path, *owner: owners.append(owner))
    atomic_files.write(path, "", owner=("lockstep", 0))
    assert owners == [("lockstep", 0)]


def test_a_link_is_replaced_and_its_target_untouched(tmp_path):
    link = tmp_path / "current"
    (tmp_path / "one").write_text("theirs")
    for target in ("two", "one"):
        atomic_files.replace_link(link, target)
        assert str(link.readlink()) == target
    atomic_files.write(link, "ours")
    assert not link.is_symlink() and (tmp_path / "one").read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "one"]
