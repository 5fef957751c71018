"""Records of state as such, and the small ones: loads, the last diff, switches, the audit log.

And the starting or hot model of each boot: notes that a power cut leaves behind.
"""

import grp
import json
import os
import stat
import subprocess
import syslog
from dataclasses import asdict, replace

import pytest
from onhost_fakes import begin_boot, host_root

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import (
    audit_log,
    json_records,
    last_diff,
    last_weight_loads,
    models_by_boot,
    switch_history,
)
from lockstep.onhost.records.models_by_boot import HOT, STARTING

LOAD = last_weight_loads.LoadRecord("qwen", 1.7e9, 70, 60, 3.0, "259:2", "nvme0n1p2", 16384)
DIFF = {"differences": [{"severity": "note", "kind": "apt package", "item": "jq"}]}


def test_what_was_saved_is_read_without_the_keys_of_a_newer_version(tmp_path):
    path = tmp_path / "state/record.json"
    json_records.save(path, LOAD, mode=0o600)
    assert json_records.load(type(LOAD), path) == LOAD
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(json.dumps({**asdict(LOAD), "newer": 1}))
    assert json_records.load(type(LOAD), path) == LOAD


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "Expecting value"), ('{"model": "qwen"}', "another version of Lockstep")],
)
def test_a_damaged_record_counts_as_missing_or_is_refused(tmp_path, text, reason):
    path = tmp_path / "record.json"
    assert json_records.load(type(LOAD), path) is None
    assert json_records.load_or_refuse(type(LOAD), path, "remove it") is None
    path.write_text(text)
    assert json_records.load(type(LOAD), path) is None
    with pytest.raises(errors.Problem, match=rf"record\.json: .*{reason}.+\. Remedy: remove it$"):
        json_records.load_or_refuse(type(LOAD), path, "remove it")


def test_each_model_keeps_its_last_load_and_everybody_may_read_it(paths):
    assert last_weight_loads.last_load_by_model(paths) == {}
    again, other_load = replace(LOAD, seconds=2.0), replace(LOAD, model="mistral")
    for load in (LOAD, other_load, again):
        last_weight_loads.record_load(paths, load)
    assert last_weight_loads.last_load_by_model(paths) == {"qwen": again, "mistral": other_load}
    assert paths.loads.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("group", "mode"), [("no-such-group-here", 0o600), (None, 0o640)])
def test_the_last_diff_is_kept_for_root_and_the_gateways_group(paths, monkeypatch, group, mode):
    monkeypatch.setattr(last_diff, "GATEWAY", group or grp.getgrgid(os.getgid()).gr_name)
    assert last_diff.load(paths) is None
    assert last_diff.answer_request(DIFF, paths) == {}
    record = last_diff.load(paths)
    assert record.pop("at") > 1_700_000_000 and record == DIFF
    assert paths.diff.stat().st_mode & 0o777 == mode


def test_a_line_of_the_audit_is_one_and_a_step_is_less_than_what_somebody_did(monkeypatch):
    entries: list[tuple[int, str]] = []
    monkeypatch.setattr("syslog.syslog", lambda priority, line: entries.append((priority, line)))
    audit_log.add_audit_line("anna", "switch to qwen", "failed:\n  its fallback is hot")
    audit_log.add_audit_line("anna", "deploy", "changed Base", step=True)
    audit_log.add_audit_line("anna", "deploy", "done", "laptop")
    assert entries == [
        (syslog.LOG_INFO, "anna: switch to qwen: failed: its fallback is hot"),
        (syslog.LOG_DEBUG, "anna: deploy: changed Base"),
        (syslog.LOG_INFO, "anna from laptop: deploy: done"),
    ]


def record_switch(paths: layout.Paths, model: str, code: int = 0) -> int:
    """Record a switch with two lines of output."""

    def switch(say) -> int:
        say("starting")
        say(f"  {model} is hot")
        return code

    return switch_history.switch_and_record(paths, "anna", model, switch)


def test_a_switch_is_kept_with_its_last_words_and_said_as_before(paths, capsys):
    assert record_switch(paths, "qwen", 3) == 3
    assert switch_history.load(paths)[0].words == "qwen is hot"
    assert capsys.readouterr().out == "starting\n  qwen is hot\n"
    assert stat.S_IMODE(paths.switches.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("code", "kept_reasons"),
    # Who met a switch under way did none.
    [(errors.EXIT_USAGE, [(errors.EXIT_USAGE, "it needs more")]), (errors.EXIT_LOCKED, [])],
)
def test_a_refused_switch_is_kept_with_its_reason(paths, code, kept_reasons):
    def refuse_switch(say) -> int:
        raise errors.Problem("it needs more", code)

    with pytest.raises(errors.Problem):
        switch_history.switch_and_record(paths, "anna", "qwen", refuse_switch)
    assert [(record.code, record.words) for record in switch_history.load(paths)] == kept_reasons


def test_the_newest_twenty_are_kept_newest_first(paths):
    for number in range(25):
        record_switch(paths, f"model{number}")
    kept_models = [record.model for record in switch_history.load(paths)]
    assert kept_models == [f"model{number}" for number in range(24, 4, -1)]


@pytest.fixture
def boot_paths(tmp_path, monkeypatch) -> layout.Paths:
    """A host in its first boot, whose journal is empty."""
    empty = subprocess.CompletedProcess([], 0, "")
    monkeypatch.setattr(models_by_boot.runner, "run", lambda *_, **__: empty)
    return host_root(tmp_path / "root", {})


@pytest.mark.parametrize("phase", [STARTING, HOT])
def test_a_boot_that_was_cut_off_tells_under_what(boot_paths, phase):
    models_by_boot.record_model_phase(boot_paths, "qwen", phase)
    assert models_by_boot.cut_off_boot(boot_paths) is None
    begin_boot(boot_paths, "2")
    last_boot = models_by_boot.cut_off_boot(boot_paths)
    assert last_boot and (last_boot.model, last_boot.phase) == ("qwen", phase)
    # The notes of the next boot leave those of the one before as they are.
    models_by_boot.record_model_phase(boot_paths, "mistral", STARTING)
    assert models_by_boot.cut_off_boot(boot_paths) == replace(last_boot, duration_s=60.0)
    # A late end leaves the next start on record.
    models_by_boot.record_model_end(boot_paths, "qwen")
    assert models_by_boot.load(boot_paths).boots[-1].model == "mistral"
    # Only the newest boot counts, and an engine that has ended leaves nothing to tell.
    models_by_boot.record_model_end(boot_paths, "mistral")
    begin_boot(boot_paths, "3")
    assert models_by_boot.cut_off_boot(boot_paths) is None


@pytest.mark.parametrize(("journal_s", "lasted_s"), [(500, 500.0), (30, 60.0)])
def test_how_long_a_boot_lasted_its_last_sign_tells(boot_paths, monkeypatch, journal_s, lasted_s):
    models_by_boot.record_model_phase(boot_paths, "qwen", HOT)
    first = models_by_boot.boot_id(boot_paths)

    def run(argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        assert f"--boot={first}" in argv
        line = {"__MONOTONIC_TIMESTAMP": f"{journal_s}000000"}
        return subprocess.CompletedProcess(argv, 0, json.dumps(line))

    monkeypatch.setattr(models_by_boot.runner, "run", run)
    begin_boot(boot_paths, "2", uptime_s=5.0)
    models_by_boot.record_model_phase(boot_paths, "qwen", STARTING)
    assert [boot.duration_s for boot in models_by_boot.load(boot_paths).boots] == [lasted_s, 5.0]


def test_a_note_is_on_disk_before_anything_goes_on(boot_paths, monkeypatch):
    """The file itself: tests/unit/onhost/core/test_atomic_files.py."""
    flushes = []

    def flush(path) -> None:
        flushes.append((path, boot_paths.boots.exists()))

    monkeypatch.setattr(models_by_boot.atomic_files, "flush", flush)
    models_by_boot.record_model_phase(boot_paths, "qwen", STARTING)
    assert flushes == [(boot_paths.boots.parent, True)]
    assert stat.S_IMODE(boot_paths.boots.stat().st_mode) == 0o600


def test_of_many_boots_the_last_ones_are_kept(boot_paths):
    for number in range(30):
        begin_boot(boot_paths, str(number))
        models_by_boot.record_model_phase(boot_paths, "qwen", HOT)
    kept_boots = models_by_boot.load(boot_paths).boots
    assert len(kept_boots) == 20 and kept_boots[-1].id == models_by_boot.boot_id(boot_paths)
