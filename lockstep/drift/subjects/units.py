"""Drift of systemd's units: the deploy's, those of the system that it needs, and what starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from lockstep.drift.subjects.kind import Expectation, How, Kind, Row, Seen
from lockstep.drift.subjects.settings import READ_AT_START
from lockstep.files.managed_file import API_KEY, WEBUI_SECRETS
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.onhost.facts import units
from lockstep.onhost.records import boots
from lockstep.onhost.switching import switch_job
from lockstep.system.base_files import SYSTEM_SERVICES, docker_generation, system_units
from lockstep.system.folders import generation

#: What Docker needs to answer, in the order of their start.
_DOCKER = ("containerd.service", "docker.socket", "docker.service")


def _unmask(row: Row) -> tuple[str, ...]:
    return ("systemctl", "unmask", row.item) if row.found == "masked" else ()


def _by_whom(row: Row) -> How:
    """A deploy turns on what is there; but it refuses a host whose Docker does not answer."""
    answers = row.item not in _DOCKER or row.found == units.OFF_AT_BOOT
    return "deploy" if row.found and answers else "by hand"


def _reread(row: Row) -> How:
    """A deploy has systemd read every unit of ours, and no unit of the system."""
    return "by hand" if row.item in SYSTEM_SERVICES else "deploy"


def _turn_on(row: Row) -> tuple[str, ...]:
    # One that is masked keeps the others from starting.
    names = _DOCKER if row.item in _DOCKER else (row.item,)
    on = 'systemctl unmask "$@" && systemctl enable --now "$@"'
    return ("sh", "-c", on, "sh", *names) if row.found else ()


def _other_path(row: Row) -> tuple[str, ...]:
    # A package's file is its package's to remove: it is looked at.
    packaged = (row.found or "").startswith(("/usr/lib/", "/lib/"))
    return ("systemctl", "cat", row.item) if packaged else ("rm", str(row.found))


def _drop_in(row: Row) -> tuple[str, ...]:
    unit, _, path = row.item.partition(" ")
    if unit in SYSTEM_SERVICES:
        # Whoever wrote it may need it: it is looked at.
        return ("systemctl", "cat", unit)
    if path.startswith(("/etc/systemd/system.control/", "/run/systemd/system.control/")):
        return ("systemctl", "revert", unit)
    return ("sh", "-c", 'rm "$0" && systemctl daemon-reload', path)


KINDS = {
    # A missing one is the deploy's to write.
    "unit": Kind(units.every, "error", lambda row: "by hand" if row.found else "deploy", _unmask),
    "unit path": Kind(units.every, "error", mend=_other_path, scope="nothing"),
    "boot": Kind(units.every, "error", "deploy", scope="nothing"),
    "running": Kind(units.every, "error", "deploy", scope="nothing"),
    "system service": Kind(units.every, "error", _by_whom, _turn_on, scope="nothing"),
    "generation": Kind(units.every, "error", "deploy", scope="nothing"),
    "unread unit": Kind(units.every, how=_reread, mend="systemctl daemon-reload", scope="odd"),
    "drop-in": Kind(units.every, "error", mend=_drop_in, scope="odd"),
    "failed unit": Kind(units.failed, "error", mend="journalctl -b -n 50 -u {item}", scope="odd"),
    "ended engine": Kind(
        units.ended_engines, "error", mend="journalctl -b -n 50 -u lockstep-memory", scope="odd"
    ),
    "service": Kind(units.at_boot),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    settings = this.plan.settings
    keys = [API_KEY] if this.key_users else []
    secrets = [WEBUI_SECRETS] if settings.webui.enabled else []
    return {
        units.every: {
            "ours": this.unit_files,
            "system": system_units(settings),
            "files": this.paths,
            "reads": {
                **READ_AT_START,
                **this.unit_programs,
                **{unit: keys for unit in this.key_users},
                **{unit: secrets for unit in this.webui_units},
            },
        },
        units.at_boot: {"known": [*this.unit_files, *system_units(settings)]},
    }


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    files = this.all_files
    for file in (file for file in files if PurePosixPath(file.path).name in this.unit_files):
        name = PurePosixPath(file.path).name
        yield Expectation("unit", name, "loaded")
        yield Expectation("unit path", name, file.path, if_there=True)
        # What has a place in the boot runs; a model has none.
        at_boot = "\n[Install]\n" in file.text
        yield Expectation("boot", name, "yes" if at_boot else "no", if_there=True)
        # This one begins nothing before the next boot.
        if at_boot and name != boots.UNIT:
            yield Expectation("running", name, "yes")
        wanted = generation(files, name)
        if wanted:
            yield Expectation("generation", name, wanted, if_there=True)
    # Of a switch or a model that failed `status`, the page and alerts tell, until the next switch.
    for name in (switch_job.UNIT, *this.model_units):
        yield Expectation("failed unit", name, "failed", if_there=True)
    for name in system_units(this.plan.settings):
        yield Expectation("system service", name, units.ON)
    docker = docker_generation(this.plan.settings)
    yield Expectation("generation", "docker.service", docker, if_there=True)
