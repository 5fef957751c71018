"""The audit log: actions of people and deploys on this host, one line each in the journal.

The journal limits its own size. `journalctl -t lockstep-audit` shows the lines of a host, `lockstep
log` those of all.
"""

from __future__ import annotations

import syslog

IDENTIFIER = "lockstep-audit"


def add_audit_line(
    person: str, action: str, result: str, origin: str = "", *, step: bool = False
) -> None:
    """Add a line: the person, the action ("switch to qwen"), its result, and the origin machine.

    A `step` of a longer action has the priority *debug*, all else *info*. No secret may be in it.
    """
    actor = f"{person} from {origin}" if origin else person
    line = " ".join(f"{actor}: {action}: {result}".split())
    syslog.openlog(IDENTIFIER, facility=syslog.LOG_AUTHPRIV)
    syslog.syslog(syslog.LOG_DEBUG if step else syslog.LOG_INFO, line)
