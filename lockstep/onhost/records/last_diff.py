"""What the last `lockstep diff` said of this host, for its page.

The operator's machine sends it; the names of what differs are for root and the gateway alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from lockstep.onhost.core import atomic, layout

#: The gateway's account and group.
GATEWAY = "lockstep-gateway"


def load(paths: layout.Paths) -> dict[str, Any] | None:
    """As `take` was given it, with "at" (Unix time, s); None where there is none, or no right."""
    found = atomic.read_json(paths.diff)
    return found if isinstance(found, dict) else None


def take(asked: dict[str, Any], paths: layout.Paths | None = None) -> dict[str, Any]:
    """Keep {"differences": [{"severity", "kind", "item", "how"}], "more", "unknown"}.

    "more" differences are left out; "unknown" is why what could not be told. OSError where it
    cannot be written.
    """
    paths = paths or layout.Paths()
    kept = {"at": round(time.time(), 1), **asked}
    atomic.write_json(paths.diff, kept, mode=0o600)
    # Without the group there is no gateway.
    with suppress(LookupError):
        atomic.write_json(paths.diff, kept, mode=0o640, owner=("root", GATEWAY))
    return {}
