"""Whether a rank does anything at all: who is frozen neither fails nor gets ready.

A process that somebody stopped (SIGSTOP) is never at work. No processor time at all, in no thread,
is a rank that hangs in the driver, on a dead disk or in a frozen control group: one that loads has
page faults, one that waits for the others looks for them now and then. Of the real vLLM over two
hosts (CPU build, lab, 2026-11-21) no rank was quiet for more than 6 s, loading, waiting or idle.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common, docker_api, units
else:
    import common
    import docker_api
    import units

STOPPED_S, STILL_S = 30.0, 300.0
#: A look reads a file per thread of the engine.
EVERY_S = 5.0
# proc_pid_stat(5): stopped by a signal; "t" is one that a debugger has just now.
_STOPPED = "T"


@dataclass(frozen=True)
class Process:
    """One process of an engine: its name, its state's letter, what all its threads ran, ns."""

    pid: int
    name: str
    state: str
    ran: int


class Stillness:
    """Looks at one start or one run, from its beginning to its end; `now` is monotonic, s."""

    def __init__(
        self,
        look: Callable[[], list[Process]],
        stopped_s: float = STOPPED_S,
        still_s: float = STILL_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._now = look, now
        self._stopped_s, self._still_s = stopped_s, still_s
        self._every_s = min(EVERY_S, stopped_s / 4)
        self._one = threading.Lock()
        self._looked = float("-inf")
        self._why = ""
        self._stopped: dict[int, float] = {}
        self._ran: tuple[float, dict[int, int]] = (now(), {})

    def why(self) -> str:
        """Why the rank counts as frozen; "" while it does something, or nothing is known of it."""
        with self._one:
            now = self._now()
            if now - self._looked >= self._every_s:
                self._looked = now
                self._why = self._judged(self._look(), now)
            return self._why

    def _judged(self, found: list[Process], now: float) -> str:
        stopped = {each.pid: each for each in found if each.state == _STOPPED}
        self._stopped = {pid: self._stopped.get(pid, now) for pid in stopped}
        for pid, since in self._stopped.items():
            if now - since >= self._stopped_s:
                name = stopped[pid].name
                return f"{name} (process {pid}) is stopped by a signal for {now - since:.0f} s"
        ran = {each.pid: each.ran for each in found}
        since, before = self._ran
        if not found or ran != before:
            self._ran = (now, ran)
        elif now - since >= self._still_s:
            return (
                f"none of its {len(found)} processes had any processor time for {now - since:.0f} s"
            )
        return ""


def engine(target: common.Target, paths: common.Paths) -> list[Process]:
    """The processes of a target's engine; [] where it has none, or they cannot be told."""
    group = target.unit
    if target.container:
        docker = docker_api.Docker(paths.docker_socket, timeout=5)
        try:
            answer = docker.json("GET", f"/containers/{target.container}/json")
        except (docker_api.Unreachable, docker_api.DockerError):
            return []
        # As Docker names it with the systemd driver, which DGX OS has.
        group = f"docker-{answer['Id']}.scope"
    asking = _asking(target.unit)
    return [
        process
        for pid in units.processes(group, paths.proc)
        if pid not in asking and (process := _process(pid, paths.proc)) is not None
    ]


def _asking(unit: str) -> set[int]:
    """What systemd runs besides the engine: the check of its readiness is always busy."""
    shown = common.run(["systemctl", "show", "--property=ControlPID", "--", unit], timeout=30)
    fields = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
    pid = fields.get("ControlPID", "")
    return {int(pid)} if pid.isdigit() else set()


def _process(pid: int, proc: Path) -> Process | None:
    folder = proc / str(pid)
    try:
        head, _, rest = (folder / "stat").read_text(encoding="utf-8").rpartition(") ")
        state, _, _, _, terminal = rest.split()[:5]
        ran = list(_ran(folder))
    except (OSError, ValueError, IndexError):
        return None
    # A kernel that does not account for it says nothing, which is no sign of anything. At a
    # terminal is somebody who looks into the container, and may stop what they do there.
    known = ran and terminal == "0"
    return Process(pid, head.partition("(")[2], state, sum(ran)) if known else None


def _ran(folder: Path) -> Iterator[int]:
    for thread in (folder / "task").iterdir():
        # A thread may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield int((thread / "schedstat").read_text(encoding="ascii").split()[0])
