"""`extra_files`: an owner's own files on a host, written, compared and removed like Lockstep's."""

from pathlib import Path

import pytest
from a_spark import pins_for
from an_inventory import ANNA, write_inventory

from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan
from lockstep.inventory.inventory_file import load

TIMER = "/etc/systemd/system/report.timer"
TEXT = "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n"


def plan(folder: Path, extra_files: dict[str, str]) -> HostPlan:
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files/report.timer").write_text(TEXT)
    path = write_inventory(folder, {"spark-1": {**ANNA, "extra_files": extra_files}})
    [host] = load(path)
    return host


def test_a_timer_is_checked_written_recorded_and_started_at_boot(tmp_path: Path) -> None:
    host = plan(tmp_path, {TIMER: "files/report.timer"})
    desired_state = DesiredState(host, pins_for(host))
    [file] = (file for file in desired_state.all_files if file.path == TIMER)
    assert (file.text, file.mode, file.check) == (TEXT, "0644", "unit")
    assert "report.timer" in desired_state.watch_units
    # The record is the proof that it is ours, for `diff`, a rollback and `remove`.
    assert TIMER in [file["path"] for file in desired_state.generation_document["files"]]


@pytest.mark.parametrize("install", ["", "[Install]\nWantedBy=multi-user.target\n"])
def test_a_service_runs_from_the_deploy_on_if_it_has_a_place_in_the_boot(tmp_path, install: str):
    (tmp_path / "mine").write_text(f"[Service]\nExecStart=/bin/sleep infinity\n{install}")
    # A program stays executable.
    (tmp_path / "report").write_text("#!/bin/sh\n")
    (tmp_path / "report").chmod(0o755)
    sources = {"/etc/systemd/system/mine.service": "mine", "/usr/local/bin/report": "report"}
    host = plan(tmp_path, sources)
    assert ("mine.service" in DesiredState(host, pins_for(host)).watch_units) is bool(install)
    modes = [(file.mode, file.check) for file in host.extra_files]
    assert sorted(modes) == [("0644", "unit"), ("0755", None)]


@pytest.mark.parametrize("source", ["files/none.timer", "picture"])
def test_what_cannot_be_written_is_refused_before_anything_is_touched(source, tmp_path, capsys):
    (tmp_path / "picture").write_bytes(b"\x89PNG")
    with pytest.raises(SystemExit):
        plan(tmp_path, {TIMER: source})
    message = " ".join(capsys.readouterr().err.split())
    assert message.startswith(f"sparks.py:2: extra_files: {TIMER} cannot be written")
