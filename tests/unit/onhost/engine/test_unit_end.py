"""The last step of a unit: the note of the boot goes, and the disk gets its own read-ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_disk import Disk
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import errors, layout
from lockstep.onhost.engine import unit_end
from lockstep.onhost.records import boot_history
from lockstep.onhost.system import read_ahead


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return host_root(tmp_path / "root", {})


def test_a_unit_that_ended_while_it_loaded_leaves_nothing(paths: layout.Paths) -> None:
    disk = Disk(paths)
    device = paths.root.stat().st_dev
    read_ahead.raise_read_ahead("qwen", [device], paths, pytest.fail)
    boot_history.record_model_phase(paths, "qwen", boot_history.STARTING)
    assert unit_end.main(["ended", "mistral"], paths) == errors.EXIT_DONE
    assert disk.kib == read_ahead.RAISED_KIB
    assert unit_end.main(["ended", "qwen"], paths) == errors.EXIT_DONE
    assert disk.kib == 128 and not paths.read_ahead.exists()
    begin_boot(paths, "2")
    assert boot_history.cut_off_boot(paths) is None


@pytest.mark.parametrize("argv", [[], ["ended"], ["noted", "qwen"]])
def test_wrong_words_are_wrong_use(
    paths: layout.Paths, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert unit_end.main(argv, paths) == errors.EXIT_USAGE
    assert "usage: boots ended MODEL" in capsys.readouterr().err
    assert not paths.boots.exists()
