"""The firewall's rules. Argument: {"table": [FAMILY, NAME], "kept", "record", "unit"}.

`kept` is the digest of the rules that are loaded at boot, `live` whether the kernel still has what
the last load made, `state` what systemd says of the unit.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import Any


def run(*argv: str) -> tuple[int, str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return 127, ""
    return done.returncode, done.stdout


def digest(path: str) -> str | None:
    try:
        with open(path, "rb") as text:
            return hashlib.sha256(text.read()).hexdigest()
    except OSError:
        return None


def live(table: list[str], record: str) -> bool:
    code, listing = run("nft", "list", "table", *table)
    try:
        with open(record, encoding="utf-8") as text:
            known = json.load(text)["listing"]
    except (OSError, ValueError, KeyError):
        return False
    return code == 0 and hashlib.sha256(listing.encode()).hexdigest() == known


def main(asked: dict[str, Any]) -> dict[str, Any]:
    names = "LoadState,ActiveState,UnitFileState,NeedDaemonReload"
    _, text = run("systemctl", "show", "-p", names, asked["unit"])
    return {
        "kept": digest(asked["kept"]),
        "live": live(asked["table"], asked["record"]),
        "state": dict(line.partition("=")[::2] for line in text.splitlines()),
    }
