"""What a member does that takes long, and what it says of itself to who switches or watches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from lockstep.onhost.cluster import runs
from lockstep.onhost.core import config, errors, layout, output, switch_lock
from lockstep.onhost.engine import log_phases
from lockstep.onhost.systemd import units

Answer = dict[str, Any]
#: Long work that says lines and ends well or not.
Do = Callable[[Callable[[str], None]], bool]


class Work:
    """Something that takes long, in a thread; `lines` are what it said."""

    def __init__(self, do: Do) -> None:
        self.lines: list[str] = []
        self.ok: bool | None = None
        self.problem = ""
        self._do = do
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Return when it has ended, or after so many seconds."""
        self._thread.join(limit_s)

    def _say(self, line: str) -> None:
        self.lines.append(line)
        tell(line)

    def _run(self) -> None:
        try:
            self.ok = self._do(self._say)
        except errors.Problem as problem:
            self.ok, self.problem = False, str(problem)
            self._say(str(problem))
        except Exception as error:
            self.ok, self.problem = False, f"{type(error).__name__}: {error}"
            raise


def report(
    host: config.Host,
    paths: layout.Paths,
    switch: str | None,
    work: Work | None,
    read: int,
) -> Answer:
    """What is up, what is under way, and the lines of that from number `read` on."""
    shown = units.show(target.unit for target in host.targets.values())
    holder = switch_lock.holder(paths.run / "switch.lock")
    groups = runs.load(paths)
    return {
        "switch": switch,
        "states": {target.name: shown[target.unit].state for target in host.targets.values()},
        "busy": work is not None and work.busy,
        "ok": work.ok if work else None,
        "problem": work.problem if work else "",
        "lines": work.lines[read:] if work else [],
        "locked": str(holder) if holder else None,
        "groups": {name: asdict(group) for name, group in groups.items()},
    }


def why(host: config.Host, started: str | None, found: Answer) -> list[str]:
    """Why the target that was started here is no good; [] while all is well."""
    if started is None:
        return []
    name = host.target(started).unit
    if not found["busy"] and found["states"][started] not in ("hot", "loading"):
        unit = units.show([name])[name]
        ended = "it ended by itself" if unit.state == "off" else unit.failure
        return [f"{name}: {ended}", *log_phases.reason(units.last_lines(name, 60))]
    return []


def tell(line: str) -> None:
    """One line for the agent's journal."""
    output.say(f"lockstep cluster: {line}")
