"""Foreign listeners at a port of ours: an engine's, or Open WebUI's.

Such a process is asked in the engine's place: for its health, for the first token, and then with
people's prompts. Any account may open a port above 1023.
"""

from __future__ import annotations

import pwd
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from lockstep.onhost.core import config, layout
from lockstep.onhost.engine import living_processes
from lockstep.onhost.system import listeners

_EVERYWHERE = ("0.0.0.0", "::")


def foreign_listener_texts(
    model: config.Model, paths: layout.Paths, beside: Iterable[config.Model] = ()
) -> list[str]:
    """Describe in words the processes that listen at the engine's address but are not of its unit.

    Processes of the units of `beside` are left out, too: those models are stopped before this one
    starts. The control group decides, because no account can put a process into that of a unit or
    container.
    """
    port_listeners = listeners_at_url(model.at_engine_address.url, paths)
    if not port_listeners:
        return []
    own = {
        process
        for item in (model, *beside)
        for process in living_processes.processes_of_model(item, paths)
    }
    return [
        listener_text(item, paths.proc)
        for item in port_listeners
        if not own.intersection(item.processes)
    ]


def impostor_texts(model: config.Model, paths: layout.Paths) -> list[str]:
    """Describe other processes that answer in a started engine's place; [] for its unit alone.

    A process that accepts a question and then closes its port no longer listens when this looks.
    """
    if not listeners_at_url(model.at_engine_address.url, paths):
        return ["a process that listens no more"]
    return foreign_listener_texts(model, paths)


def listeners_at_url(url: str, paths: layout.Paths) -> list[listeners.SocketOwner]:
    """Return all sockets that listen at the address of a URL of this host."""
    parts = urllib.parse.urlsplit(url)
    if not parts.port or not parts.hostname:
        return []
    addresses = (parts.hostname, f"::ffff:{parts.hostname}", *_EVERYWHERE)
    return [
        listener
        for listener in listeners.listeners_at_port(parts.port, paths.proc)
        if listener.address in addresses
    ]


def listener_text(listener: listeners.SocketOwner, proc: Path) -> str:
    """Describe a listener by its program, process and account, as far as they can be read."""
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
