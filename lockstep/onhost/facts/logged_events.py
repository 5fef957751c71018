"""The history of a host: runs of apt, starts of models, messages of the driver to the kernel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any

from lockstep.onhost.facts.reader_helpers import Fact, Facts, FactUnreadable, run, text
from lockstep.onhost.records import audit_log

# Units that run apt on a Spark, besides operators (facts of the field, 2026-11).
APT_UNITS = (
    *("unattended-upgrades.service", "apt-daily.service", "apt-daily-upgrade.service"),
    *("nvidia-spark-run-apt-upgrade-once.service", "dgx-dashboard-admin.service"),
    *("nvidia-spark-ota-check.service", "packagekit.service"),
)
# The most lines of a part of the page.
MOST = 120
_LONG = 400
# Messages of our own programs and of systemd about a start, and of any program about its end; an
# engine's own are in its object (`Engine.tells`).
TELLS = (
    r"lockstep (?:gate|ready|roles): (?!waiting)|^(?:Started|Failed|Stopped) |Main process exited"
    r"|NV_ERR|[Oo]ut of memory|\b[A-Z]\w*Error\b"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DRIVER = re.compile(r"NVRM|NV_ERR|\bXid\b|nvidia|[Oo]ut of memory|oom-kill|invoked oom-killer")


def lines_fact(part: str, messages: Iterable[str]) -> Fact:
    """Return lines as one fact, unchanged; of too many, only the first and the last ones."""
    every = list(messages)
    if len(every) > MOST:
        left_out = f"({len(every) - MOST} more lines)"
        every = [*every[: MOST // 2], left_out, *every[-MOST // 2 :]]
    return "lines", part, "\n".join(every)


def apt(_: object) -> Facts:
    """Yield runs of apt since the machine's start: apt's own record, and its services' messages."""
    began = time.time() - float((text("/proc/uptime") or "0").split()[0])
    blocks = (text("/var/log/apt/history.log") or "").split("\n\n")
    runs = [_apt_run(dict(_ENTRY.findall(block))) for block in blocks]
    own = [f"{utc_text(start)} apt: {line}" for start, line in runs if start >= began]
    names = [word for name in APT_UNITS for word in ("-u", name)]
    yield lines_fact("apt", [*own, *journal_lines("-b", *names)])


_ENTRY = re.compile(r"^(Start-Date|End-Date|Commandline|Requested-By|Error): (.*)$", re.MULTILINE)


def _apt_run(entry: dict[str, str]) -> tuple[float, str]:
    """Return the start of one run of apt, 0 if unknown, and its description."""
    start, end = _seconds(entry.get("Start-Date", "")), _seconds(entry.get("End-Date", ""))
    took = f"{end - start:.0f} s" if end else "not ended"
    words = (entry.get("Commandline", "no command line"), took, entry.get("Requested-By"))
    return start, ", ".join(filter(None, (*words, entry.get("Error"))))


def _seconds(date: str) -> float:
    """Return the Unix time of a date in apt's record, which is in the host's own time zone."""
    try:
        return time.mktime(time.strptime(" ".join(date.split()), "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return 0.0


def last_start_lines(question: dict[str, Any]) -> Facts:
    """Yield the last start of each model: the gate's view, the engine's choices and memory.

    Args:
        question: The "units"; a pattern of engines' messages about a start ("tells"), and one for
            such words in the single line with all arguments, which holds keys as well
            ("arguments").
    """
    for unit in question["units"]:
        newest = _raw_journal_objects("-u", unit, "-n", "1")
        # systemd's messages about a unit's run have one field, those of the run's processes
        # another.
        ids = ("INVOCATION_ID", "_SYSTEMD_INVOCATION_ID")
        run_id = next((str(newest[-1][key]) for key in ids if newest and newest[-1].get(key)), "")
        if run_id:
            # An engine that is hot for weeks has logged a million other lines.
            only = f"--grep={question['tells']}"
            messages = journal_lines(only, f"{ids[0]}={run_id}", "+", f"{ids[1]}={run_id}")
            telling_lines = (
                start_text_in_line(line, question["tells"], question["arguments"])
                for line in messages
            )
            yield lines_fact(f"start of {unit}", filter(None, telling_lines))


def start_text_in_line(line: str, tells: str, arguments: str) -> str:
    """Return the part of an engine's log line that tells of a start; of a long line, pieces."""
    if len(line) > _LONG:
        return " ".join(dict.fromkeys(re.findall(arguments, line)))
    # The words after the time and the program's name.
    return line if re.search(tells, line.partition(": ")[2]) else ""


def audit_events(question: dict[str, str]) -> list[tuple[float, str]]:
    """Return the deeds of people and deploys on this host: Unix time and line, oldest first.

    `question` has "since", as journalctl takes it; "steps": "yes" for the steps of deploys too.
    """
    least = "debug" if question["steps"] == "yes" else "info"
    words = ("-t", audit_log.IDENTIFIER, "--since", question["since"], "--priority", least)
    return [(at, line) for at, _, line in timed_journal_messages(*words)]


def timed_journal_messages(*matches: str) -> list[tuple[float, str, str]]:
    """Return Unix time, program and message of each entry; raise as `journal_lines` does."""
    return list(map(_entry, _raw_journal_objects(*matches)))


def kernel(_: object) -> Facts:
    """Yield the driver's messages to the kernel in this boot and the one before, and kills."""
    for part, boot in (("kernel, this boot", "0"), ("kernel, the boot before", "-1")):
        try:
            kernel_lines = journal_lines("-k", "-b", boot)
        except FactUnreadable:
            if boot == "0":
                raise
            kernel_lines = ["(the journal has no boot before this one)"]
        yield lines_fact(
            part,
            [
                kernel_line
                for kernel_line in kernel_lines
                if _DRIVER.search(kernel_line) or kernel_line.startswith("(")
            ],
        )


def journal_lines(*matches: str) -> list[str]:
    """Return lines of the journal: time, program, message.

    Raises FactUnreadable if journalctl fails.
    """
    return [
        f"{utc_text(at)} {program}: {line}"
        for at, program, message in timed_journal_messages(*matches)
        for line in message.splitlines()
    ]


def _raw_journal_objects(*matches: str) -> list[dict[str, object]]:
    fields = "MESSAGE,SYSLOG_IDENTIFIER,INVOCATION_ID,_SYSTEMD_INVOCATION_ID"
    argv = ("journalctl", "--no-pager", "-q", "-a", "-o", "json", f"--output-fields={fields}")
    result = run(*argv, *matches)
    is_empty = result.returncode == 1 and not result.stdout + result.stderr
    if result.returncode != 0 and not (is_empty and matches[0].startswith("--grep")):
        reason = (result.stderr or result.stdout).strip()[-200:]
        raise FactUnreadable(
            f"journalctl {' '.join(matches)} ended with {result.returncode}: {reason}"
        )
    return [json.loads(line) for line in result.stdout.splitlines()]


def _entry(entry: dict[str, object]) -> tuple[float, str, str]:
    text_said = entry.get("MESSAGE") or ""
    # The journal has a message that is no plain text, for example with colours, as bytes.
    message = (
        bytes(text_said).decode(errors="replace") if isinstance(text_said, list) else str(text_said)
    )
    at = int(str(entry["__REALTIME_TIMESTAMP"])) / 1e6
    return at, str(entry.get("SYSLOG_IDENTIFIER") or "unnamed"), _COLOUR.sub("", message)


def utc_text(seconds: float) -> str:
    """Format a time in UTC as all lines have it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
