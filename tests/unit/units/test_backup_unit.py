"""The units of the nightly backup, and what its program reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from a_spark import healthy, pins_for, spark
from tools import run, written

from lockstep import preflight
from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue as catalogues
from lockstep.host.intended import Intended
from lockstep.units.backup_unit import PASSWORD, one_disk_finding


def made(**backup: Any) -> Intended:
    plan = spark(backup=backup)
    return Intended(plan, pins_for(plan))


def test_a_host_has_them_where_the_inventory_asks_for_them() -> None:
    assert "lockstep-backup.service" not in made().unit_files
    assert "restic" not in made().packages
    this = made(enabled=True)
    assert "lockstep-backup.timer" in this.timers
    assert "restic" in this.packages


def test_each_host_has_a_folder_of_its_own() -> None:
    this = made(enabled=True, to=("/mnt/nas",))
    (text,) = [each.text for each in this.all_files if each.path == "/etc/lockstep/backup.json"]
    assert json.loads(text)["to"] == ["/mnt/nas/spark1"]


def test_a_password_by_command_comes_with_the_deploy() -> None:
    this = made(enabled=True, password={"command": ("pass", "backup")})
    (given,) = [each for each in this.given_secrets if each.path == PASSWORD]
    assert given.mode == "0600"


def test_systemd_takes_the_time(tmp_path: Path) -> None:
    this = made(enabled=True, hour=4)
    units = {
        each.path.rpartition("/")[2]: each.text
        for each in this.all_files
        if "lockstep-backup." in each.path
    }
    assert "OnCalendar=*-*-* 04:00:00" in units["lockstep-backup.timer"]
    files = written(tmp_path, units)
    done = run(["systemd-analyze", "verify", *files])
    assert "lockstep-backup" not in done.stderr, done.stderr


def codes(backup: dict[str, Any], **devices: int) -> tuple[list[str], list[str]]:
    """Findings about where its backups lie: of the plan, and of preflight on these disks."""
    plan = spark(backup=backup)
    pins = pins_for(plan)
    facts = healthy(plan, time.time())
    folders = {path: 1 for path in preflight.questions(plan, pins)["paths"]} | devices
    facts["disks"] |= {path: {"device": at, "free": 10**13} for path, at in folders.items()}
    planned = plan_hosts([plan], pins, catalogues.load(catalogues.FOLDER)).findings
    found = preflight.findings(plan, pins, facts)
    said = [[item.code for item in each if "backup" in item.code] for each in (planned, found)]
    return said[0], said[1]


def test_backups_on_the_disk_that_they_are_of_are_a_warning_at_each_deploy() -> None:
    on = {"enabled": True}
    assert codes({}) == ([], [])
    assert codes(on) == (["backup-here"], ["backup-here"])
    # Which disk a folder is on, the host alone knows.
    assert codes({**on, "to": ("/mnt/nas",)}) == ([], ["backup-here"])
    assert codes({**on, "to": ("/mnt/nas",)}, **{"/mnt/nas": 2}) == ([], [])
    assert codes({**on, "to": ("sftp:ann@nas.local:/sparks",)}) == ([], [])
    two = spark(backup={**on, "to": ("twin",)})
    assert one_disk_finding(two) is None
