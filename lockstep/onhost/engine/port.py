"""Who else listens at a port of ours: an engine's, or Open WebUI's.

Whoever does is asked in its place: for its health, for the first token, and then for what people
write. Any account may open a port above 1023.
"""

from __future__ import annotations

import pwd
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from lockstep.onhost.core import config, layout
from lockstep.onhost.engine import alive
from lockstep.onhost.system import listeners

_EVERYWHERE = ("0.0.0.0", "::")


def strangers(
    target: config.Target, paths: layout.Paths, beside: Iterable[config.Target] = ()
) -> list[str]:
    """Those that listen where the engine is asked, and are none of its unit, in words.

    Nor of the units of `beside`: targets that are stopped before it starts.
    The control group decides: no account can put a process into the one of a unit or a container.
    """
    others = listening(target.itself.url, paths)
    if not others:
        return []
    own = {process for each in (target, *beside) for process in alive.processes(each, paths)}
    return [words(each, paths.proc) for each in others if not own.intersection(each.processes)]


def pretenders(target: config.Target, paths: layout.Paths) -> list[str]:
    """Others that answer in a started engine's place, in words; [] when its unit alone listens.

    Whoever accepts a question and then closes its port listens no more when this is asked.
    """
    if not listening(target.itself.url, paths):
        return ["a process that listens no more"]
    return strangers(target, paths)


def listening(url: str, paths: layout.Paths) -> list[listeners.Listener]:
    """All that listen where a URL of this host is asked."""
    parts = urllib.parse.urlsplit(url)
    if not parts.port or not parts.hostname:
        return []
    asked = (parts.hostname, f"::ffff:{parts.hostname}", *_EVERYWHERE)
    return [each for each in listeners.at_port(parts.port, paths.proc) if each.address in asked]


def words(listener: listeners.Listener, proc: Path) -> str:
    """A listener by its program, its process and its account, as far as they can be read."""
    try:
        account = pwd.getpwuid(listener.uid).pw_name
    except KeyError:
        account = str(listener.uid)
    if not listener.processes:
        return f"a process of {account}"
    pid = listener.processes[0]
    try:
        name = (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = "unknown"
    return f"{name} (process {pid} of {account})"
