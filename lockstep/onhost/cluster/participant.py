"""One Spark's part in a cluster switch: join, drop its model, start its rank, or undo.

While it takes part, it holds its own switch lock. It takes part as long as it hears the switch's
coordinator. A member that hears nothing for the lease brings back its previous model on its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from lockstep.onhost.cluster import long_work, run_records
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import clock, config, errors, layout, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import log_phases
from lockstep.onhost.records import models_by_boot, switch_history
from lockstep.onhost.switching import precheck
from lockstep.onhost.switching import switch as switching
from lockstep.onhost.systemd import units

_JOINING = 6
_FOR_EVER = float("inf")


@dataclass(frozen=True)
class Times:
    """Periods in seconds.

    `lease`: how long a member believes in others that it does not hear. `beat`: between questions
    of rank 0. `look`: between its readings of the engine's counters. `token_wait`: for a token.
    """

    lease: float = 20.0
    beat: float = 3.0
    look: float = 15.0
    token_wait: float = 60.0


class MemberAgent:
    """The cluster membership of this host; any thread may call every public method."""

    def __init__(self, paths: layout.Paths, times: Times) -> None:
        self.paths = paths
        self.times = times
        self._changing = threading.RLock()
        self._locks = ExitStack()
        #: The switch in which this host takes part.
        self.part: run_records.SwitchPart | None = None
        self._work = long_work.Work()
        self._started_model: str | None = None
        self._joined_as: config.HostConfig | None = None
        self._until = 0.0

    @property
    def host(self) -> config.HostConfig:
        """The configuration of this host by the last deploy."""
        return config.load_host(self.paths.models)

    @property
    def _config_with_removed_models(self) -> config.HostConfig:
        """The configuration; in a switch with models that a deploy has removed since it began."""
        host, earlier_host = self.host, self._joined_as
        if self.part is None or earlier_host is None:
            return host
        return replace(host, models={**earlier_host.models, **host.models})

    def state(self, body: Answer) -> Answer:
        """Return the state of this host and its work, with its lines from number `from` on.

        This question is the sign of life of the switch's coordinator.
        """
        with self._changing:
            is_same_switch = self.part and self.part.switch == body.get("switch")
            if is_same_switch and self._until != _FOR_EVER:
                self._until = clock.now() + self.times.lease
            switch = self.part.switch if self.part else None
            work, started_model, host = (
                self._work,
                self._started_model,
                self._config_with_removed_models,
            )
        # Read first: only after the end of a start is its unit's state final.
        busy = work.busy
        unit_states = units.units_by_name(model.unit for model in host.models.values())
        unit = unit_states[host.model(started_model).unit] if started_model and not busy else None
        holder = switch_lock.holder(self.paths.switch_lock)
        return {
            "switch": switch,
            "states": {model.name: unit_states[model.unit].state for model in host.models.values()},
            "busy": busy,
            "ok": work.ok,
            "problem": work.problem,
            "lines": work.lines[body.get("from", 0) :],
            "why": _failure_lines(unit) if unit else [],
            "locked": str(holder) if holder else None,
            "groups": {
                name: asdict(cluster_run)
                for name, cluster_run in run_records.recorded_runs(self.paths).items()
            },
        }

    def join_switch(self, body: Answer) -> Answer:
        """Join a switch: take the lock, and check that the wanted model can start here.

        Raises SwitchUnderWay (75) or Problem, and then nothing is held.
        """
        with self._changing:
            if self.part is not None:
                if self.part.switch == body["switch"]:
                    return {"previous": self.part.previous}
                raise switch_lock.SwitchUnderWay(switch_lock.holder(self.paths.switch_lock))
            user, asked_on, wanted_name = body["user"], body["asked_on"], body["wanted_name"]
            with ExitStack() as stack:
                person = f"{user} on {asked_on}"
                stack.enter_context(
                    switch_lock.hold_lock(self.paths.switch_lock, person, wanted_name)
                )
                self._joined_as = self.host
                previous = self._hot_model_after_precheck(body.get("model"))
                self._set_switch_part(
                    run_records.SwitchPart(body["switch"], user, asked_on, wanted_name, previous)
                )
                self._locks = stack.pop_all()
            self._work, self._started_model = long_work.Work(), None
            # No question comes until all have joined, and each member checks all of its weights.
            self._until = clock.now() + _JOINING * self.times.lease
            return {"previous": previous}

    def begin_stopping(self, body: Answer) -> Answer:
        """Begin to stop everything that is up here."""
        with self._current_part(body) as part:
            self._set_switch_part(replace(part, is_dropped=True))
            self._work = long_work.Work(self._prepare_stop_work())
        return {}

    def start(self, body: Answer) -> Answer:
        """Begin to start a model; the lines of the start come with `state`."""
        name = body["model"]
        with self._current_part(body) as part:
            self._set_switch_part(part.with_admitted(name))
            self._started_model = name
            self._work = long_work.Work(
                lambda say: switching.Switch(self.host, self.paths, say).start_model(name)
            )
        return {}

    def commit_switch(self, body: Answer) -> Answer:
        """End a switch that succeeded: the hot model here stays."""
        with self._current_part(body) as part:
            hot = body.get("hot")
            run_records.record_finished_switch(self.paths, self.host, part, hot)
            self._record_hot_model(part, hot)
            self._record_switch_end(
                part, self._switch_exit_code(part, hot), f"{hot or 'no model'} is hot"
            )
            self._leave_switch()
        return {}

    def _switch_exit_code(self, part: run_records.SwitchPart, hot: str | None) -> int:
        """Return the end of a switch here, as an exit code of switch.sh."""
        wanted_model = self.host.models.get(part.wanted_name)
        # Another member's model leaves none here.
        if hot in (part.wanted_name, None):
            return errors.EXIT_DONE
        return (
            errors.EXIT_FALLBACK
            if wanted_model and wanted_model.fallback == hot
            else errors.EXIT_FAILED
        )

    def _record_switch_end(self, part: run_records.SwitchPart, code: int, outcome: str) -> None:
        """Record the end of another host's switch; its own host records it as its operator's."""
        if part.asked_on == self.host.name:
            return
        holder, now = switch_lock.holder(self.paths.switch_lock), time.time()
        took = now - holder.since if holder else 0.0
        person = f"{part.user} on {part.asked_on}"
        how = switch_history.SwitchRecord(
            now, round(took, 1), person, part.wanted_name, code, outcome
        )
        with suppress(OSError):
            switch_history.add_switch_record(self.paths, how)

    def _record_hot_model(self, part: run_records.SwitchPart, hot: str | None) -> None:
        """Record on disk what a power cut from now on would end, and what an operator chose."""
        try:
            cluster = self.host.cluster_of_model(hot) if hot else None
            if hot and cluster and cluster.rank:
                # This rank's unit gets no test question.
                models_by_boot.record_model_phase(self.paths, hot, models_by_boot.HOT)
            if part.user not in (run_records.WATCH, models_by_boot.BOOT):
                models_by_boot.record_hot_model_of_switch(self.paths, hot)
        except OSError as error:
            long_work.print_to_journal(f"{self.paths.boots}: {errors.why(error)}")

    def abort(self, body: Answer) -> Answer:
        """End a switch that failed: bring the previous model back, in a thread."""
        with self._changing:
            part, reason = self.part, body["reason"]
            undoing = self._until == _FOR_EVER
            if part is None or part.switch != body["switch"] or undoing:
                return {}
            if not part.is_dropped:
                self._leave_switch()
                return {}
            # From now on the coordinator's silence does not matter.
            self._until = _FOR_EVER
            stop = self._prepare_stop_work()
            self._work = long_work.Work(lambda say: self._undo_part(part, reason, stop, say))
        return {}

    def undo_if_coordinator_silent(self) -> None:
        """Undo a switch whose coordinator is silent."""
        with self._changing:
            part = self.part
            if part is None or clock.now() < self._until:
                return
            reason = f"{part.asked_on}, where the switch was asked for, is not heard any more"
            long_work.print_to_journal(f"{reason}: undoing its part here")
            self.abort({"switch": part.switch, "reason": reason})

    def undo_earlier_agents_part(self) -> None:
        """Undo the switch in which an earlier agent took part when it ended."""
        part = run_records.recorded_switch_part(self.paths)
        if part is None:
            return
        with self._changing:
            lock = switch_lock.hold_lock(
                self.paths.switch_lock, run_records.WATCH, part.previous or "none"
            )
            self._locks.enter_context(lock)
            self.part = part
            self.abort({"switch": part.switch, "reason": "the cluster agent was restarted"})

    @contextmanager
    def _current_part(self, body: Answer) -> Iterator[run_records.SwitchPart]:
        """Hold the part in the switch of a message; raise Problem if that switch is over."""
        with self._changing:
            # A message that waited for a frozen agent comes late, and must not end what is brought
            # back.
            undoing = self._until == _FOR_EVER
            if self.part is None or self.part.switch != body["switch"] or undoing:
                raise errors.Problem("this switch is over here: it was undone, or never begun")
            yield self.part

    def _hot_model_after_precheck(self, name: str | None) -> str | None:
        """Return the hot model here; raise Problem if the model `name` could not be started."""
        host = self.host
        unit_states = units.units_by_name(model.unit for model in host.models.values())
        if name is not None:
            docker = docker_api.Docker(self.paths.docker_socket, precheck.DOCKER_S)
            precheck.Precheck(host, self.paths, docker, unit_states).check_start(host.model(name))
        up = [
            t.name for t in host.models.values() if unit_states[t.unit].state in ("hot", "loading")
        ]
        return up[0] if up else None

    def _prepare_stop_work(self) -> long_work.Do:
        """Forbid starts here; return the work that stops everything that is up or starting."""
        self._started_model = None
        if self.part is not None:
            self._set_switch_part(self.part.with_admitted(None))
        start, host = self._work, self._config_with_removed_models

        def stop(say: Callable[[str], None]) -> bool:
            switch = switching.Switch(host, self.paths, say)
            switch.stop_all_models()
            # A stop ends only a start that systemd already knows of.
            while start.busy:
                clock.sleep(0.2)
                switch.stop_units_up()
            return True

        return stop

    def _undo_part(
        self,
        part: run_records.SwitchPart,
        reason: str,
        stop: long_work.Do,
        say: Callable[[str], None],
    ) -> bool:
        self._record_switch_end(part, errors.EXIT_FAILED, f"it was undone: {reason}")
        try:
            stop(say)
            host = self.host
            if part.previous is None or part.previous not in host.models:
                return True
            cluster = host.cluster_of_model(part.previous)
            if cluster is None:
                switch = switching.Switch(host, self.paths, say)
                return switch.revive_model(part.previous) == errors.EXIT_DONE
            run_records.mark_for_restart(self.paths, cluster, part, reason)
            return True
        finally:
            with self._changing:
                self._leave_switch()

    def _set_switch_part(self, part: run_records.SwitchPart | None) -> None:
        self.part = part
        run_records.save_switch_part(self.paths, part)

    def _leave_switch(self) -> None:
        self._set_switch_part(None)
        self._locks.close()


def _failure_lines(unit: units.Unit) -> list[str]:
    """Return why the unit that was started here failed; [] while all is well."""
    if unit.state in ("hot", "loading"):
        return []
    fault = "it ended by itself" if unit.state == "off" else unit.failure
    return [f"{unit.name}: {fault}", *log_phases.failure_lines(units.last_lines(unit.name, 60))]
