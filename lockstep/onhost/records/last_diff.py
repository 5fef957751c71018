"""The result of the last `lockstep diff` for this host, for its page.

The operator's machine sends it; the names of differing items are for root and the gateway alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from lockstep.onhost.core import atomic_files, layout

#: The gateway's account and group.
GATEWAY = "lockstep-gateway"


def load(paths: layout.Paths) -> dict[str, Any] | None:
    """Return the last report, with "at" (Unix time, s); None if it is missing or unreadable."""
    document = atomic_files.read_json(paths.diff)
    return document if isinstance(document, dict) else None


def answer_request(report: dict[str, Any], paths: layout.Paths | None = None) -> dict[str, Any]:
    """Store {"differences": [{"severity", "kind", "item", "how"}], "more", "unknown"}.

    "more" differences are left out; "unknown" is the reason for items that could not be compared.

    Raises:
        OSError: It cannot be written.
    """
    paths = paths or layout.Paths()
    record = {"at": round(time.time(), 1), **report}
    atomic_files.write_json(paths.diff, record, mode=0o600)
    # Without the group there is no gateway.
    with suppress(LookupError):
        atomic_files.write_json(paths.diff, record, mode=0o640, owner=("root", GATEWAY))
    return {}
