"""The starting or hot model of each boot: notes that a power cut leaves behind."""

import json
import stat
import subprocess
from dataclasses import replace

import pytest
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import layout
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.records.models_by_boot import HOT, STARTING


@pytest.fixture
def paths(tmp_path, monkeypatch) -> layout.Paths:
    """A host in its first boot, whose journal is empty."""
    empty = subprocess.CompletedProcess([], 0, "")
    monkeypatch.setattr(models_by_boot.runner, "run", lambda *_, **__: empty)
    return host_root(tmp_path / "root", {})


@pytest.mark.parametrize("phase", [STARTING, HOT])
def test_a_boot_that_was_cut_off_tells_under_what(paths, phase):
    models_by_boot.record_model_phase(paths, "qwen", phase)
    assert models_by_boot.cut_off_boot(paths) is None
    begin_boot(paths, "2")
    last_boot = models_by_boot.cut_off_boot(paths)
    assert last_boot and (last_boot.model, last_boot.phase) == ("qwen", phase)
    # The notes of the next boot leave those of the one before as they are.
    models_by_boot.record_model_phase(paths, "mistral", STARTING)
    assert models_by_boot.cut_off_boot(paths) == replace(last_boot, duration_s=60.0)
    # A late end leaves the next start on record.
    models_by_boot.record_model_end(paths, "qwen")
    assert models_by_boot.load(paths).boots[-1].model == "mistral"
    # Only the newest boot counts, and an engine that has ended leaves nothing to tell.
    models_by_boot.record_model_end(paths, "mistral")
    begin_boot(paths, "3")
    assert models_by_boot.cut_off_boot(paths) is None


@pytest.mark.parametrize(("journal_s", "duration_s"), [(500, 500.0), (30, 60.0), (None, 60.0)])
def test_how_long_a_boot_lasted_is_told_by_its_last_sign(paths, monkeypatch, journal_s, duration_s):
    models_by_boot.record_model_phase(paths, "qwen", HOT)
    first = models_by_boot.boot_id(paths)

    def run(argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        assert f"--boot={first}" in argv
        line = {"__MONOTONIC_TIMESTAMP": f"{journal_s}000000"}
        return subprocess.CompletedProcess(argv, 0, json.dumps(line))

    if journal_s:
        monkeypatch.setattr(models_by_boot.runner, "run", run)
    begin_boot(paths, "2", uptime_s=5.0)
    models_by_boot.record_model_phase(paths, "qwen", STARTING)
    assert [boot.duration_s for boot in models_by_boot.load(paths).boots] == [duration_s, 5.0]


def test_a_note_is_on_disk_before_anything_goes_on(paths, monkeypatch):
    """The file itself: tests/unit/onhost/core/test_atomic_files.py."""
    flushes = []

    def flush(path) -> None:
        flushes.append((path, paths.boots.exists()))

    monkeypatch.setattr(models_by_boot.atomic_files, "flush", flush)
    models_by_boot.record_model_phase(paths, "qwen", STARTING)
    assert flushes == [(paths.boots.parent, True)]
    assert stat.S_IMODE(paths.boots.stat().st_mode) == 0o600


def test_of_many_boots_the_last_ones_are_kept_and_a_damaged_record_is_begun_anew(paths):
    paths.boots.parent.mkdir(parents=True, exist_ok=True)
    paths.boots.write_text('{"boots": [{"id": 1}]}')
    assert models_by_boot.load(paths) == models_by_boot.BootRecord()
    for number in range(30):
        begin_boot(paths, str(number))
        models_by_boot.record_model_phase(paths, "qwen", HOT)
    kept_boots = models_by_boot.load(paths).boots
    assert len(kept_boots) == 20 and kept_boots[-1].id == models_by_boot.boot_id(paths)
