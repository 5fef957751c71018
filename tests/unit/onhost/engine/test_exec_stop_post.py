"""The last step of a unit: the note of the boot goes, and the disk gets its own read-ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_disk import Disk
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import errors, layout
from lockstep.onhost.engine import exec_stop_post
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.system import disk_read_ahead


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return host_root(tmp_path / "root", {})


def test_a_unit_that_ended_while_it_loaded_leaves_nothing(paths: layout.Paths) -> None:
    disk = Disk(paths)
    device = paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("qwen", [device], paths, pytest.fail)
    models_by_boot.record_model_phase(paths, "qwen", models_by_boot.STARTING)
    assert exec_stop_post.main(["ended", "mistral"], paths) == errors.EXIT_DONE
    assert disk.kib == disk_read_ahead.RAISED_KIB
    assert exec_stop_post.main(["ended", "qwen"], paths) == errors.EXIT_DONE
    assert disk.kib == 128 and not paths.read_ahead.exists()
    begin_boot(paths, "2")
    assert models_by_boot.cut_off_boot(paths) is None


@pytest.mark.parametrize("argv", [[], ["ended"], ["noted", "qwen"]])
def test_wrong_words_are_wrong_use(
    paths: layout.Paths, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exec_stop_post.main(argv, paths) == errors.EXIT_USAGE
    assert "usage: boots ended MODEL" in capsys.readouterr().err
    assert not paths.boots.exists()
