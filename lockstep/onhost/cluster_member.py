"""What one Spark does in a switch of its cluster: join, drop its model, start its rank, or undo.

While it takes part it holds its own switch lock. It takes part as long as who asked is heard: a
member that hears nothing for `lease_s` seconds brings back what was hot here by itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import (
        cluster_groups,
        cluster_still,
        clusters,
        common,
        docker_api,
        lock,
        phases,
        precheck,
        switching,
        units,
    )
else:
    import cluster_groups
    import cluster_still
    import clusters
    import common
    import docker_api
    import lock
    import phases
    import precheck
    import switching
    import units

LEASE_S = 20.0
# A unit's start gate asks within this time whether its rank may start.
_ADMITTED_S = 60.0
_JOINING = 6
_FOR_EVER = float("inf")
#: Who starts a group again after a fault.
WATCH = "the cluster watch"

Answer = dict[str, Any]
#: Long work that says lines and ends well or not.
Do = Callable[[Callable[[str], None]], bool]


@dataclass(frozen=True)
class Part:
    """This host's part in one switch: its id, who asked and where, what was hot here before."""

    switch: str
    user: str
    asked_on: str
    wanted: str
    previous: str | None
    dropped: bool = False


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
        except common.Problem as problem:
            self.ok, self.problem = False, str(problem)
            self._say(str(problem))
        except Exception as error:
            self.ok, self.problem = False, f"{type(error).__name__}: {error}"
            raise


class Member:
    """This host as a member of its clusters; every public method may be called by any thread."""

    def __init__(
        self,
        paths: common.Paths,
        lease_s: float = LEASE_S,
        stopped_s: float = cluster_still.STOPPED_S,
        still_s: float = cluster_still.STILL_S,
    ) -> None:
        self.paths = paths
        self.lease_s = lease_s
        self._frozen_s = (stopped_s, still_s)
        self._changing = threading.RLock()
        self._held = ExitStack()
        self._part: Part | None = None
        self._work: Work | None = None
        self._started: str | None = None
        self._still: cluster_still.Stillness | None = None
        self._until = 0.0

    @property
    def host(self) -> common.Host:
        """What the last deploy made of this host."""
        return common.load_host(self.paths.targets)

    @property
    def part(self) -> Part | None:
        """The switch that this host takes part in."""
        return self._part

    def state(self, body: Answer) -> Answer:
        """What is up here; the switch's coordinator is heard by asking."""
        with self._changing:
            mine = self._part and self._part.switch == body.get("switch")
            if mine and self._until != _FOR_EVER:
                self._until = time.monotonic() + self.lease_s
            part, work, started, still = self._part, self._work, self._started, self._still
        host = self.host
        shown = units.show(target.unit for target in host.targets.values())
        states = {target.name: shown[target.unit].state for target in host.targets.values()}
        busy = work is not None and work.busy
        lines = work.lines[body.get("from", 0) :] if work else []
        why = []
        if started and not busy and states[started] not in ("hot", "loading"):
            why = self._why(shown[host.target(started).unit])
        elif mine and started and still and (frozen := still.why()):
            why = [f"{host.target(started).unit}: {frozen}"]
        holder = lock.holder(self.paths.run / "switch.lock")
        groups = cluster_groups.load(self.paths)
        return {
            "switch": part.switch if part else None,
            "states": states,
            "busy": busy,
            "ok": work.ok if work else None,
            "problem": work.problem if work else "",
            "lines": lines,
            "why": why,
            "locked": str(holder) if holder else None,
            "groups": {name: asdict(group) for name, group in groups.items()},
        }

    def prepare(self, body: Answer) -> Answer:
        """Join a switch: take the lock, and see that the wanted target can start here.

        Locked (75) or Problem, and then nothing is held.
        """
        with self._changing:
            if self._part is not None:
                if self._part.switch == body["switch"]:
                    return {"previous": self._part.previous}
                raise lock.Locked(lock.holder(self.paths.run / "switch.lock"))
            who = f"{body['user']} on {body['asked_on']}"
            with ExitStack() as stack:
                switch_lock = lock.held(self.paths.run / "switch.lock", who, body["wanted"])
                stack.enter_context(switch_lock)
                previous = self._check(body.get("target"))
                self._keep(
                    Part(body["switch"], body["user"], body["asked_on"], body["wanted"], previous)
                )
                self._held = stack.pop_all()
            self._work, self._started = None, None
            # Nothing is asked until all have joined, and each looks at all of its weights.
            self._until = time.monotonic() + _JOINING * self.lease_s
            return {"previous": previous}

    def drop(self, body: Answer) -> Answer:
        """Begin to stop whatever is up here."""
        with self._joined(body) as part:
            self._keep(replace(part, dropped=True))
            self._started = None
            self.paths.admitted.unlink(missing_ok=True)
            self._begin(self._stopping())
        return {}

    def start(self, body: Answer) -> Answer:
        """Begin to start a target; the lines of the start come with `state`."""
        name = body["target"]
        with self._joined(body):
            target = self.host.target(name)
            self._admit(name)
            self._started = name
            self._still = cluster_still.Stillness(
                lambda: cluster_still.engine(target, self.paths), *self._frozen_s
            )
            self._begin(lambda say: switching.Switch(self.host, self.paths, say).start(name))
        return {}

    def commit(self, body: Answer) -> Answer:
        """The end of a switch that is done: what is hot here stays."""
        with self._joined(body) as part:
            hot = body.get("hot")
            cluster = self.host.cluster(hot) if hot else None
            groups = cluster_groups.load(self.paths)
            for group in groups.values():
                # Who starts a group again after a fault has not decided against it.
                decided = part.user != WATCH and group.state != cluster_groups.STOPPED
                if decided and (cluster is None or group.cluster != cluster.name):
                    reason = f"{part.user} switched to {part.wanted} on {part.asked_on}"
                    cluster_groups.save(self.paths, group.over(cluster_groups.STOPPED, reason))
            if cluster is not None and hot:
                self._hot(cluster, hot, part, groups.get(cluster.name))
            self._release()
        return {}

    def _hot(
        self,
        cluster: clusters.Cluster,
        hot: str,
        part: Part,
        before: cluster_groups.Group | None,
    ) -> None:
        group = cluster_groups.Group(cluster.name, hot, part.switch, heard=time.time())
        if before is not None and part.user == WATCH:
            group = replace(group, starts=before.starts, reason=before.reason, ended=before.ended)
        cluster_groups.save(self.paths, group)

    def abort(self, body: Answer) -> Answer:
        """The end of a switch that is off: what was hot here comes back, in a thread."""
        with self._changing:
            if self._part is None or self._part.switch != body["switch"]:
                return {"restoring": False}
            if self._until == _FOR_EVER:
                return {"restoring": True}
            if not self._part.dropped:
                self._release()
                return {"restoring": False}
            part, reason = self._part, body["reason"]
            self._started = None
            self.paths.admitted.unlink(missing_ok=True)
            # Who asked is no more waited for.
            self._until = _FOR_EVER
            stop = self._stopping()
            self._begin(lambda say: self._restore(part, reason, stop, say))
        return {"restoring": True}

    def expire(self) -> None:
        """Undo a switch whose coordinator is not heard any more."""
        with self._changing:
            part = self._part
            if part is None or time.monotonic() < self._until:
                return
            reason = f"{part.asked_on}, where the switch was asked for, is not heard any more"
            tell(f"{reason}: undoing its part here")
            self.abort({"switch": part.switch, "reason": reason})

    def resume(self) -> None:
        """Undo the switch that an earlier agent took part in when it ended."""
        try:
            data = json.loads(self.paths.joined.read_text(encoding="utf-8"))
            part = Part(**data)
        except (OSError, ValueError, TypeError):
            return
        with self._changing:
            self._held.enter_context(
                lock.held(self.paths.run / "switch.lock", WATCH, part.previous or "none")
            )
            self._part = part
            self.abort({"switch": part.switch, "reason": "the cluster agent was restarted"})

    @contextmanager
    def _joined(self, body: Answer) -> Iterator[Part]:
        """The part in the switch that a message is about; Problem when that is over."""
        with self._changing:
            if self._part is None or self._part.switch != body["switch"]:
                raise common.Problem("this switch is over here: it was undone, or never begun")
            yield self._part

    def _check(self, name: str | None) -> str | None:
        """What is hot here; Problem when the target called `name` could not be started."""
        host = self.host
        shown = units.show(target.unit for target in host.targets.values())
        if name is not None:
            docker = docker_api.Docker(self.paths.docker_socket, timeout=60)
            precheck.Precheck(host, self.paths, docker, shown).check(host.target(name))
        up = [t.name for t in host.targets.values() if shown[t.unit].state in ("hot", "loading")]
        return up[0] if up else None

    def _begin(self, do: Do) -> None:
        self._work = Work(do)

    def _stopping(self) -> Do:
        """What stops everything that is up here, also what is just about to be started."""
        start = self._work

        def stop(say: Callable[[str], None]) -> bool:
            switch = switching.Switch(self.host, self.paths, say)
            switch.none()
            # A stop ends a start, but only one that systemd knows of already.
            while start is not None and start.busy:
                start.wait(0.2)
                switch.drop()
            return True

        return stop

    def _restore(self, part: Part, reason: str, stop: Do, say: Callable[[str], None]) -> bool:
        try:
            stop(say)
            host = self.host
            if part.previous is None or part.previous not in host.targets:
                return True
            cluster = host.cluster(part.previous)
            if cluster is None:
                switch = switching.Switch(host, self.paths, say)
                return switch.revive(part.previous) == common.EXIT_DONE
            self._owe(cluster, part, reason)
            return True
        finally:
            with self._changing:
                self._release()

    def _owe(self, cluster: clusters.Cluster, part: Part, reason: str) -> None:
        """A group was hot here: rank 0 starts it again when all its members can."""
        group = cluster_groups.load(self.paths).get(cluster.name)
        if group is None:
            group = cluster_groups.Group(cluster.name, str(part.previous), part.switch)
        state = cluster_groups.ENDED if cluster.rank else cluster_groups.RECOVERING
        why = f"the switch to {part.wanted} was cut off: {reason}"
        cluster_groups.save(self.paths, group.over(state, why))

    def _admit(self, name: str) -> None:
        until = time.monotonic() + _ADMITTED_S
        self.paths.admitted.write_text(json.dumps({"target": name, "until": until}))

    def _keep(self, part: Part) -> None:
        self._part = part
        new = self.paths.joined.with_suffix(".new")
        new.write_text(json.dumps(asdict(part)), encoding="utf-8")
        new.replace(self.paths.joined)

    def _release(self) -> None:
        self.paths.admitted.unlink(missing_ok=True)
        self.paths.joined.unlink(missing_ok=True)
        self._part = None
        self._held.close()

    def _why(self, unit: units.Unit) -> list[str]:
        ended = "it ended by itself" if unit.state == "off" else unit.failure
        return [f"{unit.name}: {ended}", *phases.reason(units.last_lines(unit.name, 60))]


def tell(line: str) -> None:
    """One line for the agent's journal."""
    common.say(f"lockstep cluster: {line}")
