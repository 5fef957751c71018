"""What a host did: when apt ran, how each target started, what the driver told the kernel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any

from lockstep.onhost.facts.reading import Fact, Facts, Unreadable, run, text
from lockstep.onhost.records import audit

# Who runs apt on a Spark besides an operator (facts of the field, 2026-11).
APT_UNITS = (
    *("unattended-upgrades.service", "apt-daily.service", "apt-daily-upgrade.service"),
    *("nvidia-spark-run-apt-upgrade-once.service", "dgx-dashboard-admin.service"),
    *("nvidia-spark-ota-check.service", "packagekit.service"),
)
# No part of the page is longer, in lines.
MOST = 120
_LONG = 400
# What our own programs and systemd say of a start, and what every program says of its end; an
# engine's own words are in its object (`Engine.tells`).
TELLS = (
    r"lockstep (?:gate|ready|roles): (?!waiting)|^(?:Started|Failed|Stopped) |Main process exited"
    r"|NV_ERR|[Oo]ut of memory|\b[A-Z]\w*Error\b"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DRIVER = re.compile(r"NVRM|NV_ERR|\bXid\b|nvidia|[Oo]ut of memory|oom-kill|invoked oom-killer")


def lines(part: str, said: Iterable[str]) -> Fact:
    """Lines as they are, as one fact; of too many, the first and the last ones."""
    every = list(said)
    if len(every) > MOST:
        left_out = f"({len(every) - MOST} more lines)"
        every = [*every[: MOST // 2], left_out, *every[-MOST // 2 :]]
    return "lines", part, "\n".join(every)


def apt(_: object) -> Facts:
    """Runs of apt since the machine's start: apt's own record, and its services' words."""
    began = time.time() - float((text("/proc/uptime") or "0").split()[0])
    blocks = (text("/var/log/apt/history.log") or "").split("\n\n")
    runs = [_run(dict(_ENTRY.findall(block))) for block in blocks]
    own = [f"{clock(start)} apt: {line}" for start, line in runs if start >= began]
    names = [word for name in APT_UNITS for word in ("-u", name)]
    yield lines("apt", [*own, *journal("-b", *names)])


_ENTRY = re.compile(r"^(Start-Date|End-Date|Commandline|Requested-By|Error): (.*)$", re.MULTILINE)


def _run(entry: dict[str, str]) -> tuple[float, str]:
    """When one run of apt began, 0 where that is not told, and what it was."""
    start, end = _seconds(entry.get("Start-Date", "")), _seconds(entry.get("End-Date", ""))
    took = f"{end - start:.0f} s" if end else "not ended"
    words = (entry.get("Commandline", "no command line"), took, entry.get("Requested-By"))
    return start, ", ".join(filter(None, (*words, entry.get("Error"))))


def _seconds(date: str) -> float:
    """apt writes the host's own time."""
    try:
        return time.mktime(time.strptime(" ".join(date.split()), "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return 0.0


def starts(asked: dict[str, Any]) -> Facts:
    """The last start of each target: what the gate saw, what the engine chose and took. Asked: The
    "units"; patterns of what engines say of a start ("tells"), and of what says so in one line with
    all arguments, which holds keys as well ("arguments").
    """
    for unit in asked["units"]:
        newest = _entries("-u", unit, "-n", "1")
        # systemd speaks about a unit's run in one field, the processes of the run in another.
        ids = ("INVOCATION_ID", "_SYSTEMD_INVOCATION_ID")
        run_id = next((str(newest[-1][key]) for key in ids if newest and newest[-1].get(key)), "")
        if run_id:
            # An engine that is hot for weeks has said a million other lines.
            only = f"--grep={asked['tells']}"
            said = journal(only, f"{ids[0]}={run_id}", "+", f"{ids[1]}={run_id}")
            kept = (told(line, asked["tells"], asked["arguments"]) for line in said)
            yield lines(f"start of {unit}", filter(None, kept))


def told(line: str, tells: str, arguments: str) -> str:
    """What a line of an engine's log says of a start; "" when nothing, and of a long one pieces."""
    if len(line) > _LONG:
        return " ".join(dict.fromkeys(re.findall(arguments, line)))
    # The words after the time and the program's name.
    return line if re.search(tells, line.partition(": ")[2]) else ""


def audited(asked: dict[str, str]) -> list[tuple[float, str]]:
    """Deeds of people and deploys on this host: Unix time and line, oldest first.

    Asked: "since", as journalctl takes it; "steps": "yes" for the steps of deploys too.
    """
    least = "debug" if asked["steps"] == "yes" else "info"
    words = ("-t", audit.IDENTIFIER, "--since", asked["since"], "--priority", least)
    return [(at, line) for at, _, line in entries(*words)]


def entries(*matches: str) -> list[tuple[float, str, str]]:
    """Unix time, program and message of each entry of the journal. Unreadable as `journal`."""
    return list(map(_entry, _entries(*matches)))


def kernel(_: object) -> Facts:
    """What the driver told the kernel in this boot and in the one before, and who was killed."""
    for part, boot in (("kernel, this boot", "0"), ("kernel, the boot before", "-1")):
        try:
            said = journal("-k", "-b", boot)
        except Unreadable:
            if boot == "0":
                raise
            said = ["(the journal has no boot before this one)"]
        yield lines(part, [each for each in said if _DRIVER.search(each) or each.startswith("(")])


def journal(*matches: str) -> list[str]:
    """Lines of the journal: time, program, message. Unreadable where journalctl fails."""
    return [
        f"{clock(at)} {program}: {line}"
        for at, program, message in entries(*matches)
        for line in message.splitlines()
    ]


def _entries(*matches: str) -> list[dict[str, object]]:
    fields = "MESSAGE,SYSLOG_IDENTIFIER,INVOCATION_ID,_SYSTEMD_INVOCATION_ID"
    argv = ("journalctl", "--no-pager", "-q", "-a", "-o", "json", f"--output-fields={fields}")
    done = run(*argv, *matches)
    nothing = done.returncode == 1 and not done.stdout + done.stderr
    if done.returncode != 0 and not (nothing and matches[0].startswith("--grep")):
        said = (done.stderr or done.stdout).strip()[-200:]
        raise Unreadable(f"journalctl {' '.join(matches)} ended with {done.returncode}: {said}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _entry(entry: dict[str, object]) -> tuple[float, str, str]:
    said = entry.get("MESSAGE") or ""
    # The journal gives what is no plain text, one with colours for example, as bytes.
    message = bytes(said).decode(errors="replace") if isinstance(said, list) else str(said)
    at = int(str(entry["__REALTIME_TIMESTAMP"])) / 1e6
    return at, str(entry.get("SYSLOG_IDENTIFIER") or "unnamed"), _COLOUR.sub("", message)


def clock(seconds: float) -> str:
    """A time of UTC as all lines have it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
