"""What people and deploys did to this host, one line each in the journal, which bounds itself.

`journalctl -t lockstep-audit` shows the lines of a host, `lockstep log` those of all.
"""

from __future__ import annotations

import syslog

IDENTIFIER = "lockstep-audit"


def note(person: str, what: str, result: str, origin: str = "", *, step: bool = False) -> None:
    """Add a line: who did what ("switch to qwen"), how it ended, and from which machine.

    A `step` of a longer work has the priority *debug*, all else *info*. No secret may be in it.
    """
    who = f"{person} from {origin}" if origin else person
    line = " ".join(f"{who}: {what}: {result}".split())
    syslog.openlog(IDENTIFIER, facility=syslog.LOG_AUTHPRIV)
    syslog.syslog(syslog.LOG_DEBUG if step else syslog.LOG_INFO, line)
