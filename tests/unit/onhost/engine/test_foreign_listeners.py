"""Listeners at an engine's port, its own process or a stranger; and what a process has open."""

import mmap
import os
from dataclasses import replace
from pathlib import Path

import pytest
from a_model import model
from onhost_fakes import host_root, let_listen, put_in_container

from lockstep.onhost.engine import foreign_listeners, open_files

MODEL = model(unit="vllm.service", url="http://127.0.0.1:30001")


@pytest.fixture
def paths(tmp_path):
    return host_root(tmp_path / "root", {})


def test_the_unit_s_own_process_is_no_stranger_and_one_that_listens_no_more_is_none(paths):
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == []
    assert foreign_listeners.impostor_texts(MODEL, paths) == ["a process that listens no more"]
    let_listen(paths, 78, "/system.slice/vllm.service")
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == []
    assert foreign_listeners.impostor_texts(MODEL, paths) == []
    # What cannot be read is no process of the unit.
    (paths.proc / "78/fd/3").unlink()
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == ["a process of root"]


@pytest.mark.parametrize(("address", "is_named"), [("00000000", True), ("0200007F", False)])
def test_a_process_of_another_unit_at_its_address_is_named(paths, address, is_named):
    let_listen(paths, 77, "/user.slice/user-1001.slice/session-3.scope", address)
    texts = foreign_listeners.foreign_listener_texts(MODEL, paths)
    assert texts == (["python3 (process 77 of root)"] if is_named else [])
    # A rank without an address has no port.
    assert foreign_listeners.foreign_listener_texts(replace(MODEL, url=""), paths) == []


def test_a_process_in_its_container_or_of_a_model_that_is_stopped_before_is_none(paths):
    let_listen(paths, 79, "/system.slice/docker-0123.scope")
    put_in_container(paths, "vllm-qwen36", 79)
    own = replace(MODEL, container="vllm-qwen36")
    assert foreign_listeners.foreign_listener_texts(own, paths) == []
    message = "python3 (process 79 of root)"
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == [message]
    let_listen(paths, 83, "/system.slice/vllm-other.service")
    hot = replace(MODEL, name="other", unit="vllm-other.service")
    assert foreign_listeners.foreign_listener_texts(MODEL, paths, [hot]) == [message]


def test_a_process_uses_what_it_has_open_and_what_it_has_mapped(tmp_path):
    """By what the kernel says of real ones."""
    proc, files = Path("/proc"), [tmp_path / "a file", tmp_path / "another"]
    for path in files:
        path.write_bytes(b"x" * 4096)
    inodes = {open_files.inode_of(path) for path in files}
    of_file = open_files.inode_of(files[0])
    with files[1].open("rb"), files[0].open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        answer = open_files.open_and_mapped([os.getpid(), 2**22 + 1], inodes, proc)
        assert answer == (inodes, {of_file})
    # Python's mapping keeps the file open.
    assert open_files.open_and_mapped([os.getpid()], inodes, proc)[0] == {of_file}
    memory.close()
    assert open_files.open_and_mapped([os.getpid()], inodes, proc) == (set(), set())
