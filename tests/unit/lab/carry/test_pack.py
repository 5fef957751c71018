"""The programs that `pack.sh` writes for the operator are those that the packages install."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

from lab import carry

SCRIPT = Path(carry.__file__).with_name("pack.sh")
PACK = SCRIPT.read_text(encoding="utf-8")


def test_each_program_begins_where_its_package_says() -> None:
    """Begun elsewhere, pyinfra orders operations otherwise: hosts did not wait for each other."""
    programs = re.findall(r"^program (\S+) (\S+) (\S+)$", PACK, re.MULTILINE)
    assert [name for name, *_ in programs] == ["lockstep", "pyinfra"]
    entry_points_by_name = {
        entry.name: entry.value for entry in entry_points(group="console_scripts")
    }
    for name, module, function in programs:
        assert f"{module}:{function}" == entry_points_by_name[name]


def test_its_folders_may_be_relative(tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    (tmp_path / "lab/carry").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "lab/carry")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    # It knows the root's identity and nothing else, so the script ends behind it.
    python.write_text('#!/bin/sh\ncase "$2" in *identity*) echo abc ;; *) exit 9 ;; esac\n')
    python.chmod(0o755)
    words = ["sh", "lab/carry/pack.sh", "work", "parts", "debs"]
    assert subprocess.run(words, cwd=tmp_path).returncode == 9
    assert (tmp_path / "parts/identity").read_text() == "abc\n"
    assert not list((tmp_path / "work").iterdir())
