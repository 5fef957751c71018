"""Whether a running unit must restart: it started with another key than its file's.

The key stands in the unit's environment, so the process itself shows it. Deploy, rollout and
`lockstep diff` compare it with the file's, and nothing else decides about a unit of ours.
"""

from __future__ import annotations

from typing import Any

from lockstep.core.digest import digest
from lockstep.files.templating import render

# systemd.service(5), systemd.kill(5): what systemd itself does with a unit that runs, by the file
# as it was read last. A changed one is in force after a reload.
_OF_SYSTEMD = ("ExecStartP", "ExecStop", "Timeout", "Restart", "SuccessExit", "Kill", "OOMPolicy")


def keyed(template: str, *, contents: object = None, **values: Any) -> str:
    """A unit's text with its restart key: 16 hexadecimal digits, as `restart_key` in the template.

    `contents` is what its process reads besides the unit's own text.
    """
    started_with = [line for line in _service(render(template, restart_key="", **values)) if line]
    return render(template, restart_key=digest([started_with, contents], 16), **values)


def _service(text: str) -> list[str]:
    """The lines of [Service] that a process is started with; [Unit] and [Install] are systemd's."""
    section = text.partition("\n[Service]\n")[2].partition("\n[Install]\n")[0]
    # A line that is continued belongs to the directive that it continues.
    joined = section.replace("\\\n", " ")
    return [line for line in joined.splitlines() if not line.startswith(("#", *_OF_SYSTEMD))]
