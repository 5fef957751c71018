"""Fetches packages with this machine's own pip, and reports the progress."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.core.cache import Report
from lab.core.errors import LabError

_FETCHING = re.compile(
    r"\s*(?:Downloading|Processing|Using cached) (?P<file>\S+)(?: \((?P<size>.*)\))?"
)
_UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}


class Progress:
    """The MB that pip has begun to fetch; ``expected_mb`` is roughly the whole."""

    def __init__(self, expected_mb: float | None = None) -> None:
        self.expected_mb = expected_mb
        self.packages = 0
        self.megabytes = 0.0

    def read(self, line: str) -> str | None:
        """The text for the user after one line of pip's output, or None."""
        match = _FETCHING.match(line)
        if match is None or match["file"].endswith(".metadata"):
            return None
        self.packages += 1
        file = Path(match["file"])
        local = file.stat().st_size / 1e6 if file.is_file() else 0.0
        self.megabytes += _megabytes(match["size"] or "") or local
        name = file.name.partition("-")[0]
        total = f" of about {self.expected_mb:.0f}" if self.expected_mb else ""
        return f"package {self.packages}, {self.megabytes:.0f}{total} MB: {name}"


def _megabytes(size: str) -> float:
    number, _, unit = size.partition(" ")
    return float(number) * _UNITS.get(unit, 0.0) if number.replace(".", "", 1).isdigit() else 0.0


def download(
    requirements: Sequence[str],
    folder: Path,
    *options: str,
    report: Report,
    expected_mb: float | None = None,
) -> None:
    """Fetch distributions into ``folder``, pip's configuration as it is on this machine.

    Raises ``LabError`` with pip's own reason.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(folder), *options, *requirements]
    progress = Progress(expected_mb)
    errors: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout
        for line in pip.stdout:
            if message := progress.read(line):
                report(message)
            if line.startswith("ERROR"):
                errors.append(line.strip())
    if pip.returncode:
        reason = errors[0][:300] if errors else f"exit code {pip.returncode}"
        raise LabError(
            f"pip could not fetch {requirements[0]} and what it needs: {reason}",
            "Check this machine's internet access and pip configuration, then run it again.",
        )
