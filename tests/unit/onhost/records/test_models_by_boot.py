"""The starting or hot model of each boot: notes that a power cut leaves behind."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import layout
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.records.models_by_boot import HOT, STARTING


@pytest.fixture
def paths(tmp_path, monkeypatch) -> layout.Paths:
    """A host in its first boot; its journal has the boots that `journal_ends` names."""
    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nfor each; do case $each in --boot=*) cat "{tmp_path}/${{each#--boot=}}";;'
        " esac; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return host_root(tmp_path / "root", {})


def journal_ends(paths: layout.Paths, uptime_s: float) -> None:
    """Let the journal's last line of the present boot be of that time."""
    line = {"__MONOTONIC_TIMESTAMP": str(int(uptime_s * 1e6)), "PRIORITY": "6"}
    (paths.root.parent / models_by_boot.boot_id(paths)).write_text(json.dumps(line) + "\n")


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


@pytest.mark.parametrize(("journal", "duration_s"), [(500.0, 500.0), (30.0, 60.0), (None, 60.0)])
def test_how_long_a_boot_lasted_is_told_by_its_last_sign(paths, journal, duration_s):
    models_by_boot.record_model_phase(paths, "qwen", HOT)
    if journal:
        journal_ends(paths, journal)
    begin_boot(paths, "2", uptime_s=5.0)
    models_by_boot.record_model_phase(paths, "qwen", STARTING)
    assert [boot.duration_s for boot in models_by_boot.load(paths).boots] == [duration_s, 5.0]


def test_a_wrong_clock_changes_the_date_of_a_boot_and_nothing_else(paths, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    models_by_boot.record_model_phase(paths, "qwen", STARTING)
    assert models_by_boot.load(paths).boots[0].began == 40.0
    # It is put right while the engine loads.
    now[0] = 1e9
    begin_boot(paths, "1", uptime_s=80.0)
    models_by_boot.record_model_phase(paths, "qwen", HOT)
    (boot,) = models_by_boot.load(paths).boots
    assert (boot.began, boot.duration_s, boot.phase) == (1e9 - 80, 80.0, HOT)


def test_what_a_switch_left_outlives_the_boot(paths):
    models_by_boot.record_hot_model_of_switch(paths, "qwen")
    first = models_by_boot.boot_id(paths)
    begin_boot(paths, "2")
    models_by_boot.record_boot_begin(paths, "it is forbidden")
    record = models_by_boot.load(paths)
    assert (record.hot, record.switched_in) == ("qwen", first)
    assert [boot.no_model_reason for boot in record.boots] == [None, "it is forbidden"]
    models_by_boot.record_hot_model_of_switch(paths, None)
    assert models_by_boot.load(paths).hot is None


def test_a_note_is_on_disk_before_anything_goes_on(paths, monkeypatch):
    synced_kinds: list[str] = []
    fsync = os.fsync

    def sync(handle: int) -> None:
        fsync(handle)
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced_kinds.append("folder" if is_folder and paths.boots.exists() else "file")

    monkeypatch.setattr(os, "fsync", sync)
    models_by_boot.record_model_phase(paths, "qwen", STARTING)
    assert synced_kinds == ["file", "folder"]
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
