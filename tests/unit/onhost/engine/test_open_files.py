"""Files that processes use, by what the kernel says of real ones."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from lockstep.onhost.engine import open_files

PROC = Path("/proc")


def test_a_process_uses_what_it_has_open_and_what_it_has_mapped(tmp_path: Path) -> None:
    file, another = tmp_path / "a file", tmp_path / "another"
    for path in (file, another):
        path.write_bytes(b"x" * 4096)
    inodes = {open_files.inode_of(path) for path in (file, another)}
    with another.open("rb"), file.open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        answer = open_files.open_and_mapped([os.getpid(), 2**22 + 1], inodes, PROC)
        assert answer == (inodes, {open_files.inode_of(file)})
    # Python's mapping keeps the file open.
    [still_open] = open_files.open_and_mapped([os.getpid()], inodes, PROC)[0]
    assert still_open == open_files.inode_of(file)
    assert memory[0] == ord("x")
    memory.close()
    assert open_files.open_and_mapped([os.getpid()], inodes, PROC) == (set(), set())
