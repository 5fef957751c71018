"""The starting or hot model of each boot: notes that a power cut leaves behind."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import layout
from lockstep.onhost.records import boot_history


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
    (paths.root.parent / boot_history.boot_id(paths)).write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize("phase", [boot_history.STARTING, boot_history.HOT])
def test_a_boot_that_was_cut_off_tells_under_what(paths, phase):
    boot_history.record_model_phase(paths, "qwen", phase)
    assert boot_history.cut_off_boot(paths) is None
    begin_boot(paths, "2")
    last_boot = boot_history.cut_off_boot(paths)
    assert last_boot and (last_boot.model, last_boot.phase) == ("qwen", phase)
    # The notes of the next boot leave those of the one before as they are.
    boot_history.record_model_phase(paths, "mistral", boot_history.STARTING)
    assert boot_history.cut_off_boot(paths) == replace(last_boot, duration_s=60.0)


def test_an_engine_that_has_ended_leaves_nothing_to_tell(paths):
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    boot_history.record_model_end(paths, "qwen")
    begin_boot(paths, "2")
    assert boot_history.cut_off_boot(paths) is None


def test_a_late_end_leaves_the_next_start_on_record(paths):
    boot_history.record_model_phase(paths, "mistral", boot_history.STARTING)
    boot_history.record_model_end(paths, "qwen")
    begin_boot(paths, "2")
    assert boot_history.cut_off_boot(paths)


def test_only_the_newest_boot_counts_as_cut_off(paths):
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    begin_boot(paths, "2")
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    boot_history.record_model_end(paths, "qwen")
    begin_boot(paths, "3")
    assert boot_history.cut_off_boot(paths) is None


@pytest.mark.parametrize(("journal", "duration_s"), [(500.0, 500.0), (30.0, 60.0), (None, 60.0)])
def test_how_long_a_boot_lasted_is_told_by_its_last_sign(paths, journal, duration_s):
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    if journal:
        journal_ends(paths, journal)
    begin_boot(paths, "2", uptime_s=5.0)
    boot_history.record_model_phase(paths, "qwen", boot_history.STARTING)
    assert [boot.duration_s for boot in boot_history.load(paths).boots] == [duration_s, 5.0]


def test_a_wrong_clock_changes_the_date_of_a_boot_and_nothing_else(paths, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    boot_history.record_model_phase(paths, "qwen", boot_history.STARTING)
    assert boot_history.load(paths).boots[0].began == 40.0
    # It is put right while the engine loads.
    now[0] = 1e9
    begin_boot(paths, "1", uptime_s=80.0)
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    (boot,) = boot_history.load(paths).boots
    assert (boot.began, boot.duration_s, boot.phase) == (1e9 - 80, 80.0, boot_history.HOT)


def test_what_a_switch_left_outlives_the_boot(paths):
    boot_history.record_hot_model_of_switch(paths, "qwen")
    first = boot_history.boot_id(paths)
    begin_boot(paths, "2")
    boot_history.record_boot_begin(paths, "it is forbidden")
    record = boot_history.load(paths)
    assert (record.hot, record.switched_in) == ("qwen", first)
    assert [boot.no_model_reason for boot in record.boots] == [None, "it is forbidden"]
    boot_history.record_hot_model_of_switch(paths, None)
    assert boot_history.load(paths).hot is None


def test_a_note_is_on_disk_before_anything_goes_on(paths, monkeypatch):
    synced_kinds: list[str] = []
    fsync = os.fsync

    def sync(handle: int) -> None:
        fsync(handle)
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced_kinds.append("folder" if is_folder and paths.boots.exists() else "file")

    monkeypatch.setattr(os, "fsync", sync)
    boot_history.record_model_phase(paths, "qwen", boot_history.STARTING)
    assert synced_kinds == ["file", "folder"]
    assert stat.S_IMODE(paths.boots.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boots": [{"id": 1}]}', '{"more": 1}'])
def test_a_record_that_cannot_be_read_is_none(paths, text):
    paths.boots.parent.mkdir(parents=True, exist_ok=True)
    paths.boots.write_text(text)
    assert boot_history.load(paths) == boot_history.BootRecord()
    boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    assert boot_history.load(paths).boots[0].model == "qwen"


def test_of_many_boots_the_last_ones_are_kept(paths):
    for number in range(30):
        begin_boot(paths, str(number))
        boot_history.record_model_phase(paths, "qwen", boot_history.HOT)
    kept_boots = boot_history.load(paths).boots
    assert len(kept_boots) == 20 and kept_boots[-1].id == boot_history.boot_id(paths)
