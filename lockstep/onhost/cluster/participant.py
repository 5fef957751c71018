"""One Spark's part in a cluster switch: join, drop its model, start its rank, or undo.

While it takes part it holds its own switch lock. It takes part as long as who asked is heard: a
member that hears nothing for the lease brings back what was hot here by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from lockstep.onhost.cluster import progress, runs
from lockstep.onhost.cluster.wire_client import Answer
from lockstep.onhost.core import atomic, clock, config, errors, layout, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import log_phases
from lockstep.onhost.records import boots, switches
from lockstep.onhost.switching import precheck
from lockstep.onhost.switching import switch as switching
from lockstep.onhost.systemd import units

_JOINING = 6
_FOR_EVER = float("inf")


@dataclass(frozen=True)
class Times:
    """Seconds: how long a member believes that others are there whom it does not hear, how often
    rank 0 asks them, how often it looks at the engine's counters, how long a token may take."""

    lease: float = 20.0
    beat: float = 3.0
    look: float = 15.0
    token_wait: float = 60.0


class Member:
    """This host as a member of its clusters; every public method may be called by any thread."""

    def __init__(self, paths: layout.Paths, times: Times) -> None:
        self.paths = paths
        self.times = times
        self._changing = threading.RLock()
        self._held = ExitStack()
        #: The switch that this host takes part in.
        self.part: runs.Part | None = None
        self._work = progress.Work()
        self._started: str | None = None
        self._joined_as: config.Host | None = None
        self._until = 0.0

    @property
    def host(self) -> config.Host:
        """What the last deploy made of this host."""
        return config.load_host(self.paths.targets)

    @property
    def _host_now(self) -> config.Host:
        """The same, and in a switch the targets too that a deploy has taken away since it began."""
        host, before = self.host, self._joined_as
        if self.part is None or before is None:
            return host
        return replace(host, targets={**before.targets, **host.targets})

    def state(self, body: Answer) -> Answer:
        """What is up here and under way, with its lines from number `from` on.

        The switch's coordinator is heard by asking.
        """
        with self._changing:
            mine = self.part and self.part.switch == body.get("switch")
            if mine and self._until != _FOR_EVER:
                self._until = clock.now() + self.times.lease
            switch = self.part.switch if self.part else None
            work, started, host = self._work, self._started, self._host_now
        # First: a start that is over has made of its unit what is shown.
        busy = work.busy
        shown = units.show(target.unit for target in host.targets.values())
        unit = shown[host.target(started).unit] if started and not busy else None
        holder = switch_lock.holder(self.paths.switch_lock)
        return {
            "switch": switch,
            "states": {target.name: shown[target.unit].state for target in host.targets.values()},
            "busy": busy,
            "ok": work.ok,
            "problem": work.problem,
            "lines": work.lines[body.get("from", 0) :],
            "why": _why(unit) if unit else [],
            "locked": str(holder) if holder else None,
            "groups": {name: asdict(group) for name, group in runs.load(self.paths).items()},
        }

    def prepare(self, body: Answer) -> Answer:
        """Join a switch: take the lock, and see that the wanted target can start here.

        Locked (75) or Problem, and then nothing is held.
        """
        with self._changing:
            if self.part is not None:
                if self.part.switch == body["switch"]:
                    return {"previous": self.part.previous}
                raise switch_lock.Locked(switch_lock.holder(self.paths.switch_lock))
            user, asked_on, wanted = body["user"], body["asked_on"], body["wanted"]
            with ExitStack() as stack:
                who = f"{user} on {asked_on}"
                stack.enter_context(switch_lock.held(self.paths.switch_lock, who, wanted))
                self._joined_as = self.host
                previous = self._check(body.get("target"))
                self._keep(runs.Part(body["switch"], user, asked_on, wanted, previous))
                self._held = stack.pop_all()
            self._work, self._started = progress.Work(), None
            # Nothing is asked until all have joined, and each looks at all of its weights.
            self._until = clock.now() + _JOINING * self.times.lease
            return {"previous": previous}

    def drop(self, body: Answer) -> Answer:
        """Begin to stop whatever is up here."""
        with self._joined(body) as part:
            self._keep(replace(part, dropped=True))
            self._work = progress.Work(self._stopping())
        return {}

    def start(self, body: Answer) -> Answer:
        """Begin to start a target; the lines of the start come with `state`."""
        name = body["target"]
        with self._joined(body):
            runs.admit(self.paths, name)
            self._started = name
            self._work = progress.Work(
                lambda say: switching.Switch(self.host, self.paths, say).start(name)
            )
        return {}

    def commit(self, body: Answer) -> Answer:
        """The end of a switch that is done: what is hot here stays."""
        with self._joined(body) as part:
            hot = body.get("hot")
            runs.committed(self.paths, self.host, part, hot)
            self._note(part, hot)
            self._record(part, self._code(part, hot), f"{hot or 'no model'} is hot")
            self._release()
        return {}

    def _code(self, part: runs.Part, hot: str | None) -> int:
        """How a switch has ended here, as an exit code of switch.sh."""
        wanted = self.host.targets.get(part.wanted)
        # Another member's target leaves none here.
        if hot in (part.wanted, None):
            return errors.EXIT_DONE
        return errors.EXIT_FALLBACK if wanted and wanted.fallback == hot else errors.EXIT_FAILED

    def _record(self, part: runs.Part, code: int, said: str) -> None:
        """Keep how another host's switch ended here; its own host keeps it as its operator's."""
        if part.asked_on == self.host.name:
            return
        holder, now = switch_lock.holder(self.paths.switch_lock), time.time()
        took = now - holder.since if holder else 0.0
        person = f"{part.user} on {part.asked_on}"
        how = switches.Ended(now, round(took, 1), person, part.wanted, code, said)
        with suppress(OSError):
            switches.keep(self.paths, how)

    def _note(self, part: runs.Part, hot: str | None) -> None:
        """Keep on disk what a power cut from now on would end, and what an operator chose."""
        try:
            cluster = self.host.cluster(hot) if hot else None
            if hot and cluster and cluster.rank:
                # No canary is asked of this rank's unit.
                boots.noted(self.paths, hot, boots.HOT)
            if part.user not in (runs.WATCH, boots.BOOT):
                boots.switched(self.paths, hot)
        except OSError as error:
            progress.tell(f"{self.paths.boots}: {errors.why(error)}")

    def abort(self, body: Answer) -> Answer:
        """The end of a switch that is off: what was hot here comes back, in a thread."""
        with self._changing:
            part, reason = self.part, body["reason"]
            undoing = self._until == _FOR_EVER
            if part is None or part.switch != body["switch"] or undoing:
                return {}
            if not part.dropped:
                self._release()
                return {}
            # Who asked is no more waited for.
            self._until = _FOR_EVER
            stop = self._stopping()
            self._work = progress.Work(lambda say: self._restore(part, reason, stop, say))
        return {}

    def expire(self) -> None:
        """Undo a switch whose coordinator is not heard any more."""
        with self._changing:
            part = self.part
            if part is None or clock.now() < self._until:
                return
            reason = f"{part.asked_on}, where the switch was asked for, is not heard any more"
            progress.tell(f"{reason}: undoing its part here")
            self.abort({"switch": part.switch, "reason": reason})

    def resume(self) -> None:
        """Undo the switch that an earlier agent took part in when it ended."""
        part = runs.part_kept(self.paths)
        if part is None:
            return
        with self._changing:
            held = switch_lock.held(self.paths.switch_lock, runs.WATCH, part.previous or "none")
            self._held.enter_context(held)
            self.part = part
            self.abort({"switch": part.switch, "reason": "the cluster agent was restarted"})

    @contextmanager
    def _joined(self, body: Answer) -> Iterator[runs.Part]:
        """The part in the switch that a message is about; Problem when that is over."""
        with self._changing:
            # What waited for a frozen agent comes late, and must not end what it brings back.
            undoing = self._until == _FOR_EVER
            if self.part is None or self.part.switch != body["switch"] or undoing:
                raise errors.Problem("this switch is over here: it was undone, or never begun")
            yield self.part

    def _check(self, name: str | None) -> str | None:
        """What is hot here; Problem when the target called `name` could not be started."""
        host = self.host
        shown = units.show(target.unit for target in host.targets.values())
        if name is not None:
            docker = docker_api.Docker(self.paths.docker_socket, precheck.DOCKER_S)
            precheck.Precheck(host, self.paths, docker, shown).check(host.target(name))
        up = [t.name for t in host.targets.values() if shown[t.unit].state in ("hot", "loading")]
        return up[0] if up else None

    def _stopping(self) -> progress.Do:
        """Let nothing start here any more; what stops all that is up or about to be started."""
        self._started = None
        self.paths.admitted.unlink(missing_ok=True)
        start, host = self._work, self._host_now

        def stop(say: Callable[[str], None]) -> bool:
            switch = switching.Switch(host, self.paths, say)
            switch.none()
            # A stop ends a start, but only one that systemd knows of already.
            while start.busy:
                clock.sleep(0.2)
                switch.drop()
            return True

        return stop

    def _restore(
        self, part: runs.Part, reason: str, stop: progress.Do, say: Callable[[str], None]
    ) -> bool:
        self._record(part, errors.EXIT_FAILED, f"it was undone: {reason}")
        try:
            stop(say)
            host = self.host
            if part.previous is None or part.previous not in host.targets:
                return True
            cluster = host.cluster(part.previous)
            if cluster is None:
                switch = switching.Switch(host, self.paths, say)
                return switch.revive(part.previous) == errors.EXIT_DONE
            runs.owed(self.paths, cluster, part, reason)
            return True
        finally:
            with self._changing:
                self._release()

    def _keep(self, part: runs.Part) -> None:
        self.part = part
        atomic.write_json(self.paths.joined, asdict(part))

    def _release(self) -> None:
        self.paths.admitted.unlink(missing_ok=True)
        self.paths.joined.unlink(missing_ok=True)
        self.part = None
        self._held.close()


def _why(unit: units.Unit) -> list[str]:
    """Why the unit that was started here is no good; [] while all is well."""
    if unit.state in ("hot", "loading"):
        return []
    ended = "it ended by itself" if unit.state == "off" else unit.failure
    return [f"{unit.name}: {ended}", *log_phases.reason(units.last_lines(unit.name, 60))]
