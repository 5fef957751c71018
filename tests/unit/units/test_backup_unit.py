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


def test_a_host_has_them_where_the_inventory_asks_for_them(tmp_path: Path) -> None:
    bare = backup_host()
    assert "lockstep-backup.service" not in bare.unit_files and "restic" not in bare.packages
    password = {"command": ("pass", "backup")}
    first = backup_host(enabled=True, hour=4, to=("/mnt/nas",), password=password)
    assert "lockstep-backup.timer" in first.timers and "restic" in first.packages
    # A password by command comes with the deploy.
    assert [file.mode for file in first.uploaded_secrets if file.path == PASSWORD] == ["0600"]
    texts = {file.path.rpartition("/")[2]: file.text for file in first.all_files}
    assert json.loads(texts["backup.json"])["to"] == ["/mnt/nas/spark1"], "a folder of its own"
    assert "OnCalendar=*-*-* 04:00:00" in texts["lockstep-backup.timer"]
    units = {name: text for name, text in texts.items() if name.startswith("lockstep-backup.")}
    result = run(["systemd-analyze", "verify", *write_files(tmp_path, units)])
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
