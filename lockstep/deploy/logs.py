"""The logs with all lines of deploys on the operator's machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

from lockstep.core.errors import LockstepError

#: The number of logs to keep; older ones are deleted.
KEPT = 30


def folder() -> Path:
    """Return the folder of the logs."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lockstep" / "deploys"


def new_log() -> tuple[Path, IO[str]]:
    """Open a log for a new deploy that only this user may read.

    Raises:
        LockstepError: the log cannot be written.
    """
    where = folder()
    remedy = "Set XDG_STATE_HOME to a folder that you may write to."
    with LockstepError.instead("the log of a deploy cannot be written", where, remedy):
        where.mkdir(parents=True, exist_ok=True)
        for old in sorted(where.glob("*.log"))[: -KEPT + 1]:
            old.unlink(missing_ok=True)
        path = where / f"{time.strftime('%Y-%m-%dT%H%M%S')}-{os.getpid()}.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return path, os.fdopen(descriptor, "w", encoding="utf-8")
