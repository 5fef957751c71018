"""A switch, step by step: check, stop the hot model, start, watch, and never end worse off.

Everything here runs as root under the unit lockstep-switch.service, so that a lost phone connection
or Ctrl-C ends the watching and not the switch. The gate of the new model's unit (gate.py) waits
until the old engine is gone and its memory is back, for every way of starting it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from lockstep.onhost.core import clock, config, errors, event_lines, layout, runner, unified_memory
from lockstep.onhost.core.memory_requirement import rounded_down, rounded_up
from lockstep.onhost.docker import container_processes, docker_api, stop_container
from lockstep.onhost.engine import living_processes, log_phases, openai_api
from lockstep.onhost.records import models_by_boot, switch_history, watch_findings
from lockstep.onhost.switching import (
    hot_change_under_way,
    precheck,
    start_gate,
    start_phase_printer,
    switch_step_durations,
)
from lockstep.onhost.systemd import units

HEARTBEAT_S = 10.0
# A hot engine under full load may keep one more request waiting.
_HOT_TEST_QUESTION_S = 30.0
# More than TimeoutStopSec of any unit here; systemd itself limits a stop.
_STOP_LIMIT_S = 300.0
# The kernel's time to end killed processes: as long as the gate would wait.
_GONE_S = 120.0

State = dict[str, "units.Unit"]


class Switch:
    """One switch on one host; `say` gets the lines for the operator."""

    def __init__(
        self,
        host: config.HostConfig,
        paths: layout.Paths,
        say: Callable[[str], None] = event_lines.say,
        user: str = "",
    ) -> None:
        self._host = host
        self._print = say
        self.hot_already = False  #: True if `switch_to` had nothing to start.
        self._began = self._spoke = clock.now()
        self._cancellable = False
        self._paths = paths
        self._user = user
        self._steps = switch_step_durations.Steps()
        self._docker = docker_api.Docker(paths.docker_socket, precheck.DOCKER_S)

    def switch_to(self, name: str) -> int:
        """Make `name` the one hot model; return 0, else one of `EXIT_*` by what is hot now."""
        model = self._host.model(name)
        with self._steps.time_step("check"):
            state = self._unit_states()
            if state[model.unit].state == "hot" and not self._other_models_up(model, state):
                try:
                    return self._check_hot_model(model)
                except openai_api.NotReady as answer:
                    self._say(f"{name} is up but does not serve ({answer}): restarting it", "check")
            try:
                self._precheck(state).check_start(model)
            except errors.Problem as refusal:
                return self._refuse_or_start_interrupted(model, refusal, state)
        previous = self._model_to_bring_back(model, state)
        self._forget_interrupted()
        if usual := switch_history.usual_seconds_by_model(switch_history.load(self._paths)).get(
            name
        ):
            self._say(f"a switch to {name} usually takes {event_lines.duration(usual)}", "check")
        work = hot_change_under_way.HotWork(name, self._user, previous.name if previous else None)
        with hot_change_under_way.keep_on_record(self._paths, "switch", work):
            return self._start_or_replace_model(model, previous, state)

    def _refuse_or_start_interrupted(
        self, model: config.Model, refusal: errors.Problem, state: State
    ) -> int:
        """Raise the refusal, or start the model that a cancelled switch left to this one."""
        interrupted_model = self._interrupted_model()
        if interrupted_model is None:
            raise refusal
        self._forget_interrupted()
        self._say(f"{model.name} FAILED: {refusal}", "failed")
        code = self._start_or_replace_model(interrupted_model, None, state)
        return errors.EXIT_FAILED if code == errors.EXIT_DONE else code

    def stop_all_models(self) -> int:
        """Stop every model's unit; raise Problem if one does not end."""
        self._forget_interrupted()
        has_stopped = self._stop_all(self._unit_states())
        self._reset_failed_units()
        self._say("no model is hot" if has_stopped else "no model was hot", "done")
        return errors.EXIT_DONE

    def start_model(self, name: str) -> bool:
        """Start a model while nothing else is up; tell whether it is hot."""
        return self._attempt_start(self._host.model(name), lambda: None)

    def stop_units_up(self) -> None:
        """Stop all units that are up, silently if there are none."""
        self._stop_all(self._unit_states())

    def restart_model(self, name: str) -> bool:
        """Stop and start a model, whose files may be new; tell whether it is hot."""
        model = self._host.model(name)
        return self._attempt_start(model, lambda: self._stop_units([model]))

    def revive_model(self, name: str) -> int:
        """Start a model that was hot until now, without the precheck; codes as for `switch_to`."""
        return self._start_or_replace_model(self._host.model(name), None, self._unit_states())

    def stop_failed_model(self, name: str) -> None:
        """Stop a failed model, and with that its restarts; report errors."""
        self._stop_or_report([self._host.model(name)])

    def replace_memory_killed_model(self, name: str) -> int:
        """Start the replacement of a model that the memory watch ended; codes as for `switch_to`.

        It is the fallback, else the previously hot model, but never one that the memory watch has
        ended too.
        """
        model, state = self._host.model(name), self._unit_states()
        up = [
            other_model.name
            for other_model in self._host.models.values()
            if state[other_model.unit].up
        ]
        if up:
            self._say(f"{', '.join(up)} is up meanwhile")
            return errors.EXIT_DONE
        kills = watch_findings.load(self._paths).kills
        spares = [
            spare
            for spare in self._models_to_fall_back_to(model, self._hot_before(model))
            if spare.cluster is None and spare.unit not in kills
        ]
        why = kills.get(model.unit)
        self._say(f"{name}: {why.reason}" if why else f"{name} was ended")
        if not spares:
            why_none = f"{name} was ended, and nothing may take its place"
            self._say(f"NO MODEL IS HOT: {why_none}", "failed")
            return errors.EXIT_NOTHING_HOT
        first, second = spares[0], spares[1] if spares[1:] else None
        work = hot_change_under_way.HotWork(first.name, self._user, second.name if second else None)
        with hot_change_under_way.keep_on_record(self._paths, "switch", work):
            return self._start_or_replace_model(first, second, state)

    def _hot_before(self, model: config.Model) -> config.Model | None:
        """Return the model that was hot before the switch that made a model hot."""
        record = hot_change_under_way.load(self._paths)
        return self._host.models.get(record.previous or "") if record.hot == model.name else None

    def finish_cut_off_switch(self, work: hot_change_under_way.HotWork) -> int:
        """Continue a switch that was cut off; codes as for `switch_to`."""
        self._say(f"the switch to {work.model} was cut off, finishing it", "check")
        model = self._host.model(work.model)
        previous = self._host.models.get(work.previous) if work.previous else None
        state = self._unit_states()
        if state[model.unit].up:
            # A unit that is starting goes on starting; only the others are stopped.
            state = {name: unit for name, unit in state.items() if name != model.unit}
        return self._start_or_replace_model(model, previous, state)

    def rehearse_switch(self, name: str) -> int:
        """Report what a switch would do; touch nothing.

        Returns:
            0, or the code of a failure if the memory gate would refuse it with the memory available
            now.

        Raises:
            errors.Problem: It would be refused at once.
        """
        state = self._unit_states()
        up = sorted({t.name for t in self._host.models.values() if state[t.unit].up})
        self._say(f"up now: {', '.join(up) or 'no model'}")
        if name == "none":
            self._say(f"would stop {', '.join(up)}" if up else "nothing to do")
            return errors.EXIT_DONE
        model = self._host.model(name)
        if state[model.unit].state == "hot" and not self._other_models_up(model, state):
            self._say(f"{name} is hot already: would ask it for a token")
            return errors.EXIT_DONE
        check = self._precheck(state)
        check.check_start(model)
        available, held_gib = check.available_and_held_gib()
        need = model.memory_need.available(unified_memory.memory(self._paths.proc).total)
        self._say(f"image and weights of {name} are here")
        self._say(
            f"memory: needs {rounded_up(need)} GiB, {rounded_down(available)} available"
            + (
                f", {rounded_down(held_gib)} more when {', '.join(up)} is stopped"
                if held_gib
                else ""
            )
        )
        if not held_gib and need > available:
            self._say(
                f"would wait {start_gate.DEFAULT_WAIT_S:.0f} s for memory and then be refused"
            )
            return errors.EXIT_FAILED
        spare = [
            spare.name
            for spare in self._models_to_fall_back_to(
                model, self._model_to_bring_back(model, state)
            )
        ]
        self._say(f"if {name} does not start: {', then '.join([*spare, 'no model'])}")
        return errors.EXIT_DONE

    def _say(self, line: str, kind: str = "") -> None:
        self._spoke = clock.now()
        self._print(event_lines.EventLine(kind, line) if kind else line)

    def _unit_states(self) -> State:
        return units.units_by_name(model.unit for model in self._host.models.values())

    def _precheck(self, state: State) -> precheck.Precheck:
        return precheck.Precheck(self._host, self._paths, self._docker, state)

    def _other_models_up(self, model: config.Model, state: State) -> list[config.Model]:
        return [
            other_model
            for other_model in self._host.other_models(model.name)
            if state[other_model.unit].up
        ]

    def _check_hot_model(self, model: config.Model) -> int:
        engine = model.at_engine_address
        openai_api.check_health(engine)
        try:
            test_answer = openai_api.ask_test_question(
                engine, openai_api.api_key(engine), _HOT_TEST_QUESTION_S
            )
        except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
            raise errors.Problem(
                f"{model.name} is hot and /health is green, but it generated nothing within "
                f"{_HOT_TEST_QUESTION_S:.0f} s ({answer}): busy or wedged. Remedy: switch.sh "
                f"none, then switch.sh {model.name}"
            ) from answer
        self._reset_failed_units()
        self.hot_already = True
        self._say(f"{model.name} is hot already ({test_answer})", "done")
        return errors.EXIT_DONE

    def _model_to_bring_back(self, model: config.Model, state: State) -> config.Model | None:
        """Return the model to bring back if the start fails: one that was up and not failing."""
        for other_model in self._other_models_up(model, state):
            if state[other_model.unit].state in ("hot", "loading"):
                return other_model
        return self._interrupted_model()

    def _interrupted_model(self) -> config.Model | None:
        return self._host.models.get(
            hot_change_under_way.load(self._paths).model_left_stopped or ""
        )

    def _forget_interrupted(self) -> None:
        if hot_change_under_way.load(self._paths).model_left_stopped:
            hot_change_under_way.record_hot_model(self._paths, None, None)

    def _models_to_fall_back_to(
        self, model: config.Model, previous: config.Model | None
    ) -> list[config.Model]:
        """Return the models to start instead of a model that does not start, best first."""
        fallback = self._host.models.get(model.fallback) if model.fallback else None
        candidates = [spare for spare in (fallback, previous) if spare is not None]
        return [spare for at, spare in enumerate(candidates) if spare not in candidates[:at]]

    def _start_or_replace_model(
        self, model: config.Model, previous: config.Model | None, state: State
    ) -> int:
        tried_models = [model]
        self._cancellable = True
        try:
            if self._attempt_start(model, lambda: self._stop_all(state)):
                self._reset_failed_units()
                self._record_hot_model(model.name, previous)
                return errors.EXIT_DONE
            for spare in self._models_to_fall_back_to(model, previous):
                # A unit that restarts itself would come back beside the next one.
                stop = partial(self._stop_units, tuple(tried_models))
                tried_models.append(spare)
                if self._attempt_start(spare, stop):
                    return self._report_other_model_hot(model, spare, was_hot=spare == previous)
        except hot_change_under_way.SwitchCancellation as error:
            return self._undo_cancelled_switch(error.request, tried_models, previous)
        return self._end_with_nothing_hot(
            tried_models, "failed" if previous else "failed; none was before"
        )

    def _undo_cancelled_switch(
        self,
        request: hot_change_under_way.CancellationRequest,
        tried_models: Sequence[config.Model],
        previous: config.Model | None,
    ) -> int:
        """Undo a switch that was cancelled while the last of `tried_models` was starting."""
        model = tried_models[0]
        self._say(f"{request.user} cancelled the switch to {model.name}")
        if previous in tried_models:
            return self._end_with_nothing_hot(
                tried_models, f"failed, or {request.user} cancelled it"
            )
        if previous is None or not request.restore:
            self._stop_or_report(tried_models)
            self._reset_failed_units()
            if previous:
                self._record_hot_model(None, previous)
            self._say(f"the switch to {model.name} was cancelled; no model is hot", "done")
            return errors.EXIT_CANCELLED
        try:
            if self._attempt_start(previous, partial(self._stop_units, tuple(tried_models))):
                self._reset_failed_units()
                outcome = f"the switch to {model.name} was cancelled; {previous.name} is hot again"
                self._say(outcome, "done")
                return errors.EXIT_CANCELLED
        except hot_change_under_way.SwitchCancellation as second:
            request = second.request
        return self._end_with_nothing_hot(
            [*tried_models, previous], f"failed, or {request.user} cancelled it"
        )

    def _end_with_nothing_hot(self, tried_models: Sequence[config.Model], why: str) -> int:
        self._stop_or_report(tried_models)
        names = " and ".join(model.name for model in tried_models)
        self._say(f"NO MODEL IS HOT: {names} {why}", "failed")
        return errors.EXIT_NOTHING_HOT

    def _record_hot_model(self, name: str | None, previous: config.Model | None) -> None:
        previous_name = previous.name if previous else None
        with suppress(OSError):
            hot_change_under_way.record_hot_model(self._paths, name, previous_name)

    def _reset_failed_units(self) -> None:
        """Reset failed units, now that the operator has the model that they asked for.

        The journal keeps the reason; `lockstep diff` would name the units until somebody reset them
        by hand.
        """
        names = [*(model.unit for model in self._host.models.values()), models_by_boot.UNIT]
        # The operator's request is done, so a fault here must not fail it.
        with suppress(errors.Problem):
            failed_units = [
                name for name, unit in units.units_by_name(names).items() if unit.state == "failed"
            ]
            if failed_units:
                units.control_units("reset-failed", *failed_units)

    def _report_other_model_hot(
        self, model: config.Model, spare: config.Model, was_hot: bool
    ) -> int:
        again = " again" if was_hot else ""
        if spare.name == model.fallback:
            self._say(f"{model.name} FAILED; its fallback {spare.name} is hot{again}", "failed")
            return errors.EXIT_FALLBACK
        self._say(f"the switch to {model.name} FAILED; {spare.name} is hot{again}", "failed")
        return errors.EXIT_FAILED

    def _attempt_start(self, model: config.Model, first: Callable[[], object]) -> bool:
        """Do `first`, then start `model`; a fault is reported and ends only this attempt."""
        try:
            first()
            return self._start_unit(model)
        except errors.Problem as problem:
            self._say(f"{model.name} FAILED: {problem}", "failed")
            return False

    def _stop_or_report(self, models: Iterable[config.Model]) -> None:
        try:
            self._stop_units(models)
        except errors.Problem as problem:
            self._say(str(problem))

    def _stop_all(self, state: State) -> bool:
        """Stop units that are up and stray containers; tell whether there was anything to stop."""
        up = [
            model
            for model in self._host.models.values()
            if model.unit in state and state[model.unit].up
        ]
        names = sorted({model.name for model in up})
        with self._steps.time_step("stop"):
            if up:
                began = clock.now()
                self._say(f"stopping {', '.join(names)}", "stop")
                self._stop_units(up)
                self._say(f"stopped in {event_lines.duration(clock.now() - began)}", "stop")
            return bool(self._remove_stray_containers(state) + names)

    def _stop_units(self, models: Iterable[config.Model]) -> None:
        """Stop units, and with that also the restarts of those that fail.

        A unit is stopped once no process is left: systemd calls one stopped whose container lives.
        """
        models = tuple(models)
        names = sorted({model.unit for model in models})
        units.control_units(
            "stop", *names, limit_s=_STOP_LIMIT_S, look=self._progress_reporter("stopping")
        )
        began = clock.now()
        while leftovers := [
            words
            for stopped_model in models
            for words in living_processes.leftover_process_texts(stopped_model, self._paths)
        ]:
            waited_s = clock.now() - began
            if waited_s >= _GONE_S:
                raise errors.Problem(
                    f"not stopped after {event_lines.duration(waited_s)}: {'; '.join(leftovers)}. "
                    "Remedy: switch.sh none; where that says the same, reboot"
                )
            if clock.now() - self._spoke >= HEARTBEAT_S:
                self._say(f"… waiting for the end of {'; '.join(leftovers)}", "stop")
            clock.sleep(0.5)

    def _remove_stray_containers(self, state: State) -> list[str]:
        names = {
            model.container
            for model in self._host.models.values()
            if model.container and model.unit in state
        }
        if not names:
            return []
        stray = {
            name
            for name in names
            if container_processes.process_ids_of_container(name, self._paths)
        }
        try:
            running = self._docker.running_containers(names)
            stray |= {name for name in running if docker_api.is_ours(running[name].get("Labels"))}
            for name in sorted(running.keys() - stray):
                self._say(f"container {name} is not Lockstep's and stays")
        except (docker_api.DockerUnreachable, docker_api.DockerError) as error:
            self._say(f"Docker not asked for containers: {error}")
        for name in sorted(stray):
            self._say(f"removing container {name}: it runs outside its unit", "stop")
            try:
                stop_container.stop(self._docker, name, 60, self._paths)
            except (docker_api.DockerUnreachable, docker_api.DockerError) as error:
                self._say(f"container {name} was ended, its name is not free yet: {error}")
        return sorted(stray)

    def _start_unit(self, model: config.Model) -> bool:
        """Start a unit and show its progress; its readiness check is part of the start.

        Raises:
            SwitchCancellation: The unit may still be starting then.
        """
        self._check_cancelled()
        began = clock.now()
        since = time.time()
        # A unit that hit its start limit would refuse although the operator asks for it.
        units.try_to_control("reset-failed", model.unit)
        self._say(f"starting {model.name}", "gate")
        look = self._progress_reporter("starting", is_cancellable=True)
        with start_phase_printer.StartPhasePrinter(model.unit, since, self._say):
            # systemd limits the time of a start.
            is_started = units.try_to_control("start", model.unit, limit_s=math.inf, look=look)
        took = event_lines.duration(clock.now() - began)
        unit = units.units_by_name([model.unit])[model.unit]
        # A check that is killed together with its engine counts as passed: SIGKILL is among the
        # orderly ends of an engine.
        if is_started and unit.state == "hot":
            test_answer = self._read_journaled_test_answer(model.unit, since)
            self._say(f"took: {self._steps}", "took")
            self._say(
                f"{model.name} is hot, started in {took}"
                + (f", {test_answer}" if test_answer else ""),
                "done",
            )
            return True
        self._say(f"{model.name} FAILED after {took}: {unit.failure}", "failed")
        # The memory watch's record may come a moment later: it kills first.
        if memory_kill := watch_findings.load(self._paths).kills.get(model.unit):
            self._say(f"  {memory_kill.reason}", "why")
        for line in log_phases.failure_lines(units.last_lines(unit.name, 60, since)):
            self._say(f"  {line}", "why")
        return False

    def _read_journaled_test_answer(self, unit: str, since: float) -> str | None:
        test_answer = self._steps.add_start_durations(unit, units.last_lines(unit, 20, since))
        if test_answer:
            return test_answer
        # The journal may lag a moment behind the unit whose start it records.
        with suppress(errors.Problem):
            runner.run(["journalctl", "--sync"], timeout=20)
        return self._steps.add_start_durations(unit, units.last_lines(unit, 20, since))

    def _check_cancelled(self) -> None:
        if self._cancellable:
            hot_change_under_way.raise_if_cancelled(self._paths, self._began)

    def _progress_reporter(self, activity: str, is_cancellable: bool = False) -> Callable[[], None]:
        """Return what to do every second of a long activity: tell of it now and then.

        If it can be cancelled, that raises SwitchCancellation, and systemd goes on.
        """
        began = clock.now()

        def look() -> None:
            if is_cancellable:
                self._check_cancelled()
            if clock.now() - self._spoke >= HEARTBEAT_S:
                self._say(f"… {activity}, {event_lines.duration(clock.now() - began)}", "still")

        return look
