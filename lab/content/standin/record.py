"""Writes down exactly how the engine was started."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

DEFAULT_FILE = "/var/log/standin/argv.json"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def started_with(argv: list[str]) -> dict[str, object]:
    """Command line and environment of the start; possibly secret values become their SHA-256."""
    return {
        "argv": argv,
        "environment": {
            name: _display_value(name, value) for name, value in sorted(os.environ.items())
        },
        "working_directory": str(Path.cwd()),
        "user": os.getuid(),
        "python": sys.version.split()[0],
        "started": round(time.time(), 3),
    }


def _display_value(name: str, value: str) -> str:
    if not _SECRET.search(name):
        return value
    return "sha256:" + hashlib.sha256(value.encode()).hexdigest()


def write(record: dict[str, object]) -> None:
    """Write the record to the file that ``STANDIN_RECORD`` names, replacing it at once."""
    path = Path(os.environ.get("STANDIN_RECORD", DEFAULT_FILE))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target_path = path.with_name(path.name + ".unfinished")
        target_path.write_text(json.dumps(record, indent=1))
        target_path.rename(path)
    except OSError as error:
        print(f"stand-in: cannot write {path}: {error}", file=sys.stderr)
