"""The restart key of a unit: a running unit whose key differs from its file's must restart.

The key stands in the unit's environment, so the process itself shows it. Deploy, rollout and
`lockstep diff` compare it with the file's. Nothing else decides about a unit of ours.
"""

from __future__ import annotations

from typing import Any

from lockstep.core.digest import digest
from lockstep.files.templating import render_template

# Directives that systemd itself applies to a running unit (systemd.service(5), systemd.kill(5)),
# from the file as it was read last. A change is in force after a reload.
_OF_SYSTEMD = ("ExecStartP", "ExecStop", "Timeout", "Restart", "SuccessExit", "Kill", "OOMPolicy")


def with_restart_key(template: str, *, contents: object = None, **values: Any) -> str:
    """Return a unit's text with its restart key, which the template has as `restart_key`.

    The key is 16 hexadecimal digits. `contents` is what the process reads besides the unit's text.
    """
    started_with = [
        line for line in _service(render_template(template, restart_key="", **values)) if line
    ]
    return render_template(template, restart_key=digest([started_with, contents], 16), **values)


def _service(text: str) -> list[str]:
    """Return the lines of [Service] that start a process; [Unit] and [Install] are systemd's."""
    section = text.partition("\n[Service]\n")[2].partition("\n[Install]\n")[0]
    # A continued line belongs to its directive.
    joined_section = section.replace("\\\n", " ")
    return [
        line for line in joined_section.splitlines() if not line.startswith(("#", *_OF_SYSTEMD))
    ]
