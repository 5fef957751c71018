"""Client of `systemctl`: the only source of truth about what runs on a host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, runner

UP = ("active", "reloading", "refreshing", "activating", "deactivating")

_ANSWER_S = 30.0
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
    control_pid: int = 0
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
    "ControlPID": ("control_pid", _number),
    "ExecMainCode": ("main_code", str),
    "ExecMainStatus": ("main_status", _number),
    "StateChangeTimestamp": ("since", _moment),
    "ActiveEnterTimestamp": ("enter_time", _moment),
    "StateChangeTimestampMonotonic": ("change_time", lambda text: _number(text) / 1e6),
    "NRestarts": ("restarts", _number),
    "Description": ("description", str),
}


def units_by_name(names: Iterable[str]) -> dict[str, Unit]:
    """Ask systemd about all units in one call; a unit that does not exist is `not-found`."""
    return {
        name: unit_from_properties(state) for name, state in properties(names, *_FIELDS).items()
    }


def unit_from_properties(state: Mapping[str, str]) -> Unit:
    """Return the unit of these properties; one that is missing has its default."""
    fields = ((name, read, state.get(key)) for key, (name, read) in _FIELDS.items())
    return Unit(**{name: read(text) for name, read, text in fields if text is not None})


def properties(names: Iterable[str], *keys: str) -> dict[str, dict[str, str]]:
    """Ask systemd about all units in one call; return the text of these properties, and Id.

    Times are in seconds of Unix time after an "@". A property that comes more than once, as
    EnvironmentFiles does, has a line for each time.
    """
    states = {name: {"Id": name} for name in names}
    # systemd refuses a question about a template: it knows its instances alone.
    single_names = [name for name in states if "@." not in name]
    if single_names:
        wanted_keys = ",".join(dict.fromkeys(("Id", *keys)))
        words = ("show", "--timestamp=unix", f"--property={wanted_keys}", "--")
        answers = list(_states(_systemctl_output(*words, *single_names)))
        # Answers come in the order asked. Id is another name for an alias.
        if len(answers) < len(single_names):
            raise errors.Problem(f"systemctl show said nothing of {single_names[len(answers)]}")
        states.update(zip(single_names, answers, strict=True))
    return states


def _states(answer: str) -> Iterator[dict[str, str]]:
    state: dict[str, str] = {}
    for line in (*answer.split("\n"), ""):
        key, _, value = line.partition("=")
        if key:
            state[key] = f"{state[key]}\n{value}" if key in state else value
        elif "Id" in state:
            # An empty line before it is of a command line.
            yield state
            state = {}


def loaded_units(*patterns: str) -> dict[str, Unit]:
    """Return load, active and sub state of the units that systemd holds; it reads no file.

    `patterns` are names or patterns of them; without any, all are returned.
    """
    rows = _rows("list-units", "--all", "--full", "--", *patterns)
    return {name: Unit(name, load, active, sub) for name, load, active, sub, *_ in rows}


def installed_services() -> list[str]:
    """Return services that have a file, and instances of templates that systemd holds."""
    files = [row[0] for row in _rows("list-unit-files", "--type=service")]
    own = [name for name in files if "@." not in name]
    return list(dict.fromkeys([*own, *loaded_units("*@*.service")]))


def socket_units_by_address() -> dict[str, str]:
    """Return the socket unit by which systemd listens, by address ("127.0.0.1:80", "/run/x")."""
    return {row[0]: row[1] for row in _rows("list-sockets", "--all", "--full") if len(row) > 1}


def file_text(unit: str) -> str:
    """Return the text of a unit's file and of its drop-ins."""
    return _systemctl_output("cat", "--", unit)


def environment_files(state: Mapping[str, str]) -> list[str]:
    """Return the files of variables, or patterns of them, that a unit reads at its start."""
    return [line.rpartition(" (")[0] for line in state.get("EnvironmentFiles", "").splitlines()]


def _rows(verb: str, *words: str) -> list[list[str]]:
    answer = _systemctl_output(verb, "--plain", "--no-legend", *words)
    return [line.split() for line in answer.splitlines() if line.strip()]


def _systemctl_output(verb: str, *words: str) -> str:
    result = runner.run(["systemctl", verb, *words], timeout=_ANSWER_S)
    if result.returncode != 0:
        raise errors.Problem(f"systemctl {verb} failed: {result.stderr.strip()}")
    return result.stdout


def control_units(
    verb: str,
    *names: str,
    options: Sequence[str] = (),
    limit_s: float = 120.0,
    look: Callable[[], None] | None = None,
) -> None:
    """Have systemd do `verb` to units; raise Problem if it refuses or takes longer than `limit_s`.

    `look` is called every second meanwhile; what it raises ends the wait, and systemd goes on.
    """
    words = (verb, *options, *(("--", *names) if names else ()))
    result = runner.run(["systemctl", *words], limit_s, look=look)
    if result.returncode != 0:
        command = " ".join((verb, *names))
        raise errors.Problem(f"systemctl {command} failed: {result.stderr.strip()}")


def try_to_control(
    verb: str, *names: str, limit_s: float = 120.0, look: Callable[[], None] | None = None
) -> bool:
    """Do as `control_units`, where a refusal may do no harm; tell whether systemd did it."""
    try:
        control_units(verb, *names, limit_s=limit_s, look=look)
    except errors.Problem:
        return False
    return True


def gate_and_load_seconds(unit: str) -> tuple[float, float] | None:
    """Return seconds of the last start before its main process (gate) and after (load, test
    question)."""
    keys = [
        f"{name}TimestampMonotonic" for name in ("InactiveExit", "ExecMainStart", "ActiveEnter")
    ]
    state = properties([unit], *keys)[unit]
    deactivate_time, began, up = (_number(state.get(key, "")) for key in keys)
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
