"""Client of `systemctl show`: the only source of truth about what runs on a host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, runner

UP = ("active", "reloading", "refreshing", "activating", "deactivating")

# siginfo's si_code as systemd reports it in ExecMainCode.
_CLD_EXITED = "1"


@dataclass(frozen=True)
class Unit:
    """One unit as `systemctl show` describes it.

    `since` is the time of its last change of state, in seconds of Unix time or None; `change_time`
    the same by `time.monotonic`, which no jump of the clock moves. `enter_time` is the time at
    which it last became active, as `since`: a socket that was open all the time changes its state
    with its service.
    """

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    file_state: str = ""
    main_pid: int = 0
    main_code: str = "0"
    main_status: int = 0
    since: float | None = None
    enter_time: float | None = None
    change_time: float = 0.0
    restarts: int = 0
    description: str = ""

    @property
    def is_installed(self) -> bool:
        """True if systemd could load it."""
        return self.load == "loaded"

    @property
    def up(self) -> bool:
        """True if any process of it may be alive: started, starting or stopping."""
        return self.active in UP

    @property
    def is_enabled(self) -> bool:
        """True if it has a boot link."""
        return self.file_state in ("enabled", "enabled-runtime", "linked-runtime-enabled")

    @property
    def is_transient(self) -> bool:
        """True if `systemd-run` made it: it has a file in /run alone."""
        return self.file_state == "transient"

    @property
    def state(self) -> str:
        """State in the operator's words: hot, loading, stopping, restarting, failed or off."""
        if self.active == "activating" and self.sub.startswith("auto-restart"):
            return "restarting"
        words = {"activating": "loading", "deactivating": "stopping", "failed": "failed"}
        if self.active in words:
            return words[self.active]
        # Stopping a unit between two restarts makes it inactive, but its last run did fail.
        if self.active == "inactive" and self.result not in ("", "success"):
            return "failed"
        return "hot" if self.up else "off"

    @property
    def failure(self) -> str:
        """Reason of a failure, e.g. `exit-code, exit status 3` or `timeout, killed by signal 9`."""
        if self.main_code in ("", "0"):
            return self.result
        exited_well = self.main_code == _CLD_EXITED and self.main_status == 0
        if self.result == "exit-code" and (exited_well or self.main_code != _CLD_EXITED):
            # The result came from ExecStartPre= or ExecStartPost=, not from the main process.
            return "exit-code, a check of its start failed"
        how = "exit status" if self.main_code == _CLD_EXITED else "killed by signal"
        return f"{self.result}, {how} {self.main_status}"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _moment(text: str) -> float | None:
    return float(_number(text.lstrip("@"))) or None


#: Property of `systemctl show` → field of `Unit`, and the parser of its text.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "Id": ("name", str),
    "LoadState": ("load", str),
    "ActiveState": ("active", str),
    "SubState": ("sub", str),
    "Result": ("result", str),
    "UnitFileState": ("file_state", str),
    "MainPID": ("main_pid", _number),
    "ExecMainCode": ("main_code", str),
    "ExecMainStatus": ("main_status", _number),
    "StateChangeTimestamp": ("since", _moment),
    "ActiveEnterTimestamp": ("enter_time", _moment),
    "StateChangeTimestampMonotonic": ("change_time", lambda text: _number(text) / 1e6),
    "NRestarts": ("restarts", _number),
    "Description": ("description", str),
}


def show(names: Iterable[str]) -> dict[str, Unit]:
    """Ask systemd about all units in one call; a unit that does not exist is `not-found`."""
    wanted_names = list(dict.fromkeys(names))
    if not wanted_names:
        return {}
    argv = ["systemctl", "show", "--timestamp=unix", f"--property={','.join(_FIELDS)}"]
    result = runner.run([*argv, "--", *wanted_names], timeout=30)
    if result.returncode != 0:
        raise errors.Problem(f"systemctl show failed: {result.stderr.strip()}")
    units_found = [_unit(block) for block in result.stdout.strip().split("\n\n")]
    # Answers come in the order asked; Id differs from the requested name if that is an alias.
    return dict(zip(wanted_names, units_found, strict=True))


def _properties(properties_text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in properties_text.splitlines())


def _unit(properties_text: str) -> Unit:
    properties = _properties(properties_text)
    return Unit(
        **{to: read(properties[name]) for name, (to, read) in _FIELDS.items() if name in properties}
    )


def start_times(unit: str) -> tuple[float, float] | None:
    """Return seconds of the last start before its main process (gate) and after (load, test
    question)."""
    names = ("InactiveExit", "ExecMainStart", "ActiveEnter")
    properties = ",".join(f"{name}TimestampMonotonic" for name in names)
    result = runner.run(["systemctl", "show", f"--property={properties}", "--", unit], timeout=30)
    unit_properties = _properties(result.stdout)
    deactivate_time, began, up = (
        _number(unit_properties.get(f"{name}TimestampMonotonic", "")) for name in names
    )
    if not 0 < deactivate_time <= began <= up:
        return None
    return (began - deactivate_time) / 1e6, (up - began) / 1e6


def processes(unit: str, proc: Path = Path("/proc")) -> list[int]:
    """Return process ids in the unit's control group, also those that outlived the unit.

    systemd calls a unit inactive even if a process survived SIGKILL (stuck in the driver); such a
    process still holds its memory.
    """
    process_ids = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            groups = (entry / "cgroup").read_text(encoding="utf-8")
        except OSError:
            continue
        if any(unit in line.split("/") for line in groups.splitlines()):
            process_ids.append(int(entry.name))
    return process_ids


def last_lines(unit: str, count: int, since: float | None = None) -> list[str]:
    """Return the unit's last journal lines; empty if the journal cannot be read."""
    argv = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={count}"]
    if since is not None:
        argv.append(f"--since=@{int(since)}")
    try:
        result = runner.run([*argv, f"--unit={unit}"], timeout=20)
    except errors.Problem:
        return []
    return [line for line in result.stdout.splitlines() if line.strip()]


def is_root() -> bool:
    """Tell whether this process may start and stop units."""
    return os.geteuid() == 0
