"""The programs that `pack.sh` writes for the operator are those that the packages install."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

from lab import carry

PACK = Path(carry.__file__).with_name("pack.sh").read_text(encoding="utf-8")


def test_each_program_begins_where_its_package_says() -> None:
    """Begun elsewhere, pyinfra orders operations otherwise: hosts did not wait for each other."""
    programs = re.findall(r"^program (\S+) (\S+) (\S+)$", PACK, re.MULTILINE)
    assert [name for name, *_ in programs] == ["lockstep", "pyinfra"]
    entry_points_by_name = {
        entry.name: entry.value for entry in entry_points(group="console_scripts")
    }
    for name, module, function in programs:
        assert f"{module}:{function}" == entry_points_by_name[name]
