"""The units of the nightly backup, and what its program reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from a_spark import healthy, pins_for, spark
from tools import run, write_files

from lockstep import preflight
from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue as catalogues
from lockstep.host.desired_state import DesiredState
from lockstep.units.backup_unit import PASSWORD, one_disk_finding


def backup_host(**backup: Any) -> DesiredState:
    plan = spark(backup=backup)
    return DesiredState(plan, pins_for(plan))


def test_a_host_has_them_where_the_inventory_asks_for_them() -> None:
    assert "lockstep-backup.service" not in backup_host().unit_files
    assert "restic" not in backup_host().packages
    desired_state = backup_host(enabled=True)
    assert "lockstep-backup.timer" in desired_state.timers
    assert "restic" in desired_state.packages


def test_each_host_has_a_folder_of_its_own() -> None:
    desired_state = backup_host(enabled=True, to=("/mnt/nas",))
    (text,) = [
        file.text for file in desired_state.all_files if file.path == "/etc/lockstep/backup.json"
    ]
    assert json.loads(text)["to"] == ["/mnt/nas/spark1"]


def test_a_password_by_command_comes_with_the_deploy() -> None:
    desired_state = backup_host(enabled=True, password={"command": ("pass", "backup")})
    (given_secret,) = [
        secret for secret in desired_state.uploaded_secrets if secret.path == PASSWORD
    ]
    assert given_secret.mode == "0600"


def test_systemd_takes_the_time(tmp_path: Path) -> None:
    desired_state = backup_host(enabled=True, hour=4)
    units = {
        managed_file.path.rpartition("/")[2]: managed_file.text
        for managed_file in desired_state.all_files
        if "lockstep-backup." in managed_file.path
    }
    assert "OnCalendar=*-*-* 04:00:00" in units["lockstep-backup.timer"]
    files = write_files(tmp_path, units)
    result = run(["systemd-analyze", "verify", *files])
    assert "lockstep-backup" not in result.stderr, result.stderr


def codes(backup: dict[str, Any], **devices: int) -> tuple[list[str], list[str]]:
    """Codes of findings about the place of backups: of plan, and of preflight on these disks."""
    plan = spark(backup=backup)
    pins = pins_for(plan)
    facts = healthy(plan, time.time())
    folders = {path: 1 for path in preflight.questions(plan, pins)["paths"]} | devices
    facts["disks"] |= {path: {"device": at, "free": 10**13} for path, at in folders.items()}
    findings = plan_hosts([plan], pins, catalogues.load(catalogues.FOLDER)).findings
    preflight_findings = preflight.findings(plan, pins, facts)
    codes_by_time = [
        [item.code for item in group if "backup" in item.code]
        for group in (findings, preflight_findings)
    ]
    return codes_by_time[0], codes_by_time[1]


def test_backups_on_the_disk_that_they_are_of_are_a_warning_at_each_deploy() -> None:
    on = {"enabled": True}
    assert codes({}) == ([], [])
    assert codes(on) == (["backup-here"], ["backup-here"])
    # Which disk a folder is on, the host alone knows.
    assert codes({**on, "to": ("/mnt/nas",)}) == ([], ["backup-here"])
    assert codes({**on, "to": ("/mnt/nas",)}, **{"/mnt/nas": 2}) == ([], [])
    assert codes({**on, "to": ("sftp:ann@nas.local:/sparks",)}) == ([], [])
    two = spark(backup={**on, "to": ("peer",)})
    assert one_disk_finding(two) is None
