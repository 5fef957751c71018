"""A switch, step by step: check, stop the hot model, start, watch, and never end worse off.

Everything here runs as root under the unit lockstep-switch.service, so that a lost phone
connection or Ctrl-C ends the watching and not the switch. That the old engine is gone and its
memory back is awaited by the gate of the new one's unit (gate.py), however that is started.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from lockstep.onhost.core import atomic, clock, config, errors, layout, meminfo, output, runner
from lockstep.onhost.core.need import rounded_down, rounded_up
from lockstep.onhost.docker import container_group, docker_api, stop_container
from lockstep.onhost.engine import alive, log_phases, openai_api
from lockstep.onhost.records import boots, ended, switches
from lockstep.onhost.switching import (
    cancellation,
    gate,
    journal,
    precheck,
    timing,
    unfinished,
)
from lockstep.onhost.systemd import units

HEARTBEAT_S = 10.0
# A start that is cancelled ends within seconds.
_LOOK_S = 1.0
# A hot engine under full load may keep one more request waiting.
_HOT_CANARY_S = 30.0
# More than TimeoutStopSec of any unit here; systemd itself bounds a stop.
_STOP_LIMIT_S = 300.0
# What the kernel may need to end processes that were killed: as long as the gate would wait.
_GONE_S = 120.0

State = dict[str, "units.Unit"]


class Switch:
    """One switch on one host; `say` gets the lines for the operator."""

    def __init__(
        self,
        host: config.Host,
        paths: layout.Paths,
        say: Callable[[str], None] = output.say,
        user: str = "",
    ) -> None:
        self._host = host
        self._print = say
        self.hot_already = False  #: Whether `to` had nothing to start.
        self._spoke = 0.0
        self._began = clock.now()
        self._cancellable = False
        self._paths = paths
        self._user = user
        self._steps = timing.Steps()
        self._docker = docker_api.Docker(paths.docker_socket, precheck.DOCKER_S)

    def to(self, name: str) -> int:
        """Make `name` the one hot target: 0 done, else one of `EXIT_*` by what is hot now."""
        target = self._host.target(name)
        with self._steps.timed("check"):
            state = self._state()
            if state[target.unit].state == "hot" and not self._up_beside(target, state):
                try:
                    return self._already_hot(target)
                except openai_api.NotReady as answer:
                    self._say(f"{name} is up but does not serve ({answer}): restarting it")
            try:
                self._precheck(state).check(target)
            except errors.Problem as refusal:
                return self._refuse(target, refusal, state)
        previous = self._previous(target, state)
        self._forget_interrupted()
        if usual := switches.usual_s(switches.load(self._paths)).get(name):
            self._say(f"a switch to {name} usually takes {output.duration(usual)}")
        work = unfinished.Unfinished(name, previous.name if previous else None, self._user)
        with unfinished.recorded(self._paths, work):
            return self._replace(target, previous, state)

    def _refuse(self, target: config.Target, refusal: errors.Problem, state: State) -> int:
        """Raise the refusal, or start the model that a cancelled switch left to this one."""
        interrupted = self._host.targets.get(self._interrupted() or "")
        if interrupted is None:
            raise refusal
        self._forget_interrupted()
        self._say(f"{target.name} FAILED: {refusal}")
        code = self._replace(interrupted, None, state)
        return errors.EXIT_FAILED if code == errors.EXIT_DONE else code

    def none(self) -> int:
        """Stop every target's unit. Problem when something would not end."""
        self._forget_interrupted()
        stopped = self._stop_all(self._state())
        self._forgive()
        self._say("no model is hot" if stopped else "no model was hot")
        return errors.EXIT_DONE

    def start(self, name: str) -> bool:
        """Start a target where nothing else is up; whether it is hot."""
        return self._attempt(self._host.target(name), lambda: None)

    def drop(self) -> None:
        """Stop what is up, where anything is; says nothing where nothing is."""
        self._stop_all(self._state())

    def again(self, name: str) -> bool:
        """Stop and start a target, whose files may be new; whether it is hot."""
        target = self._host.target(name)
        return self._attempt(target, lambda: self._stop([target]))

    def revive(self, name: str) -> int:
        """Start a target that was hot until now, without a look at what it needs; as for `to`."""
        return self._replace(self._host.target(name), None, self._state())

    def stop(self, name: str) -> None:
        """Stop a target that failed, and with that its restarts; what goes wrong is said."""
        self._quietly_stop([self._host.target(name)])

    def instead_of(self, name: str) -> int:
        """Start what may take the place of a target that the memory floor has ended; as for `to`.

        Its fallback, else what was hot before it; never what the floor has ended as well.
        """
        target, state = self._host.target(name), self._state()
        up = [other.name for other in self._host.targets.values() if state[other.unit].up]
        if up:
            self._say(f"{', '.join(up)} is up meanwhile")
            return errors.EXIT_DONE
        spares = [
            spare
            for spare in self._spares(target, self._hot_before(target))
            if spare.cluster is None and ended.of(self._paths, spare.unit) is None
        ]
        why = ended.of(self._paths, target.unit)
        self._say(f"{name}: {why.reason}" if why else f"{name} was ended")
        if not spares:
            self._say(f"NO MODEL IS HOT: {name} was ended, and nothing may take its place")
            return errors.EXIT_NOTHING_HOT
        first, second = spares[0], spares[1] if spares[1:] else None
        work = unfinished.Unfinished(first.name, second.name if second else None, self._user)
        with unfinished.recorded(self._paths, work):
            return self._replace(first, second, state)

    def _hot_before(self, target: config.Target) -> config.Target | None:
        """What was hot before the switch that made a target hot."""
        try:
            said = json.loads(self._paths.hot_before.read_text(encoding="utf-8"))
            return self._host.targets.get(said["before"]) if said["hot"] == target.name else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def finish(self, work: unfinished.Unfinished) -> int:
        """Go on where a switch was cut off; codes as for `to`."""
        self._say(f"the switch to {work.target} was cut off, finishing it")
        target = self._host.target(work.target)
        previous = self._host.targets.get(work.previous) if work.previous else None
        state = self._state()
        if state[target.unit].up:
            # What is starting goes on starting; only the others are stopped.
            state = {name: unit for name, unit in state.items() if name != target.unit}
        return self._replace(target, previous, state)

    def rehearse(self, name: str) -> int:
        """Say what a switch would do; touches nothing.

        Problem when it would be refused at once; the code of a failure where the memory gate would
        refuse it with what is available now.
        """
        state = self._state()
        up = sorted({t.name for t in self._host.targets.values() if state[t.unit].up})
        self._say(f"up now: {', '.join(up) or 'no model'}")
        if name == "none":
            self._say(f"would stop {', '.join(up)}" if up else "nothing to do")
            return errors.EXIT_DONE
        target = self._host.target(name)
        if state[target.unit].state == "hot" and not self._up_beside(target, state):
            self._say(f"{name} is hot already: would ask it for a token")
            return errors.EXIT_DONE
        check = self._precheck(state)
        check.check(target)
        available, held = check.promised()
        need = target.need.available(meminfo.memory(self._paths.proc).total)
        self._say(f"image and weights of {name} are here")
        self._say(
            f"memory: needs {rounded_up(need)} GiB, {rounded_down(available)} available"
            + (f", {rounded_down(held)} more when {', '.join(up)} is stopped" if held else "")
        )
        if not held and need > available:
            self._say(f"would wait {gate.DEFAULT_WAIT_S:.0f} s for memory and then be refused")
            return errors.EXIT_FAILED
        spare = [spare.name for spare in self._spares(target, self._previous(target, state))]
        self._say(f"if {name} does not start: {', then '.join([*spare, 'no model'])}")
        return errors.EXIT_DONE

    def _say(self, line: str) -> None:
        self._spoke = clock.now()
        self._print(line)

    def _state(self) -> State:
        return units.show(target.unit for target in self._host.targets.values())

    def _precheck(self, state: State) -> precheck.Precheck:
        return precheck.Precheck(self._host, self._paths, self._docker, state)

    def _up_beside(self, target: config.Target, state: State) -> list[config.Target]:
        return [other for other in self._host.others(target.name) if state[other.unit].up]

    def _already_hot(self, target: config.Target) -> int:
        engine = target.itself
        openai_api.check_health(engine)
        try:
            canary = openai_api.canary(engine, openai_api.api_key(engine), _HOT_CANARY_S)
        except (openai_api.NotReady, openai_api.Refused) as answer:
            raise errors.Problem(
                f"{target.name} is hot and /health is green, but it generated nothing within "
                f"{_HOT_CANARY_S:.0f} s ({answer}): busy or wedged. Remedy: switch.sh none, then "
                f"switch.sh {target.name}"
            ) from answer
        self._forgive()
        self.hot_already = True
        self._say(f"{target.name} is hot already ({canary})")
        return errors.EXIT_DONE

    def _previous(self, target: config.Target, state: State) -> config.Target | None:
        """The model to bring back when the start fails: one that was up and not failing."""
        for other in self._up_beside(target, state):
            if state[other.unit].state in ("hot", "loading"):
                return other
        return self._host.targets.get(self._interrupted() or "")

    def _interrupted(self) -> str | None:
        """The model that a cancelled switch has stopped and left to this one to bring back."""
        said = atomic.read_json(self._paths.hot_before)
        if not isinstance(said, dict) or said.get("hot") is not None:
            return None
        return str(said.get("before"))

    def _forget_interrupted(self) -> None:
        if self._interrupted():
            self._paths.hot_before.unlink(missing_ok=True)

    def _spares(self, target: config.Target, previous: config.Target | None) -> list[config.Target]:
        """What to start instead of a target that does not start, best first."""
        fallback = self._host.targets.get(target.fallback) if target.fallback else None
        found = [spare for spare in (fallback, previous) if spare is not None]
        return [spare for at, spare in enumerate(found) if spare not in found[:at]]

    def _replace(self, target: config.Target, previous: config.Target | None, state: State) -> int:
        tried = [target]
        self._cancellable = True
        try:
            if self._attempt(target, lambda: self._stop_all(state)):
                self._forgive()
                self._note_hot(target.name, previous)
                return errors.EXIT_DONE
            for spare in self._spares(target, previous):
                # A unit that restarts itself would come back beside the next one.
                stop = partial(self._stop, tuple(tried))
                tried.append(spare)
                if self._attempt(spare, stop):
                    return self._instead(target, spare, was_hot=spare == previous)
        except cancellation.Cancelled as cancelled:
            return self._take_back(cancelled.request, tried, previous)
        return self._nothing_hot(tried, "failed" if previous else "failed; none was before")

    def _take_back(
        self,
        request: cancellation.Request,
        tried: Sequence[config.Target],
        previous: config.Target | None,
    ) -> int:
        """Undo a switch that somebody cancelled while the last of `tried` was starting."""
        target = tried[0]
        self._say(f"{request.user} cancelled the switch to {target.name}")
        if previous in tried:
            return self._nothing_hot(tried, f"failed, or {request.user} cancelled it")
        if previous is None or not request.restore:
            self._quietly_stop(tried)
            self._forgive()
            if previous:
                self._note_hot(None, previous)
            self._say(f"the switch to {target.name} was cancelled; no model is hot")
            return errors.EXIT_CANCELLED
        try:
            if self._attempt(previous, partial(self._stop, tuple(tried))):
                self._forgive()
                self._say(
                    f"the switch to {target.name} was cancelled; {previous.name} is hot again"
                )
                return errors.EXIT_CANCELLED
        except cancellation.Cancelled as second:
            request = second.request
        return self._nothing_hot([*tried, previous], f"failed, or {request.user} cancelled it")

    def _nothing_hot(self, tried: Sequence[config.Target], why: str) -> int:
        self._quietly_stop(tried)
        self._say(f"NO MODEL IS HOT: {' and '.join(each.name for each in tried)} {why}")
        return errors.EXIT_NOTHING_HOT

    def _note_hot(self, name: str | None, previous: config.Target | None) -> None:
        before = previous.name if previous else None
        with suppress(OSError):
            atomic.write_json(self._paths.hot_before, {"hot": name, "before": before})

    def _forgive(self) -> None:
        """Forget units that failed earlier, now that the operator has what they asked for.

        The journal keeps why; `lockstep diff` would name them until somebody did this by hand.
        """
        names = [*(target.unit for target in self._host.targets.values()), boots.UNIT]
        # What the operator asked for is done, whatever comes of this.
        with suppress(errors.Problem):
            failed = [name for name, unit in units.show(names).items() if unit.state == "failed"]
            if failed:
                runner.run(["systemctl", "reset-failed", "--", *failed])

    def _instead(self, target: config.Target, spare: config.Target, was_hot: bool) -> int:
        again = " again" if was_hot else ""
        if spare.name == target.fallback:
            self._say(f"{target.name} FAILED; its fallback {spare.name} is hot{again}")
            return errors.EXIT_FALLBACK
        self._say(f"the switch to {target.name} FAILED; {spare.name} is hot{again}")
        return errors.EXIT_FAILED

    def _attempt(self, target: config.Target, first: Callable[[], object]) -> bool:
        """Do `first`, then start `target`; whatever goes wrong is said, and costs this attempt."""
        try:
            first()
            return self._start(target)
        except errors.Problem as problem:
            self._say(f"{target.name} FAILED: {problem}")
            return False

    def _quietly_stop(self, targets: Iterable[config.Target]) -> None:
        try:
            self._stop(targets)
        except errors.Problem as problem:
            self._say(str(problem))

    def _stop_all(self, state: State) -> bool:
        """Stop units that are up and stray containers; whether there was anything to stop."""
        up = [
            target
            for target in self._host.targets.values()
            if target.unit in state and state[target.unit].up
        ]
        names = sorted({target.name for target in up})
        with self._steps.timed("stop"):
            if up:
                began = clock.now()
                self._say(f"stopping {', '.join(names)}")
                self._stop(up)
                self._say(f"stopped in {output.duration(clock.now() - began)}")
            return bool(self._remove_stray_containers(state) + names)

    def _stop(self, targets: Iterable[config.Target]) -> None:
        """Stop units, and with that also the restarts of those that fail.

        Stopped is what has no process left: systemd calls a unit stopped whose container lives.
        """
        targets = tuple(targets)
        names = sorted({target.unit for target in targets})
        result = self._watched(["systemctl", "stop", "--", *names], "stopping", _STOP_LIMIT_S)
        if result.returncode != 0:
            raise errors.Problem(f"systemctl stop failed: {result.stderr.strip()}")
        began = clock.now()
        while left := [words for each in targets for words in alive.left_of(each, self._paths)]:
            waited = clock.now() - began
            if waited >= _GONE_S:
                raise errors.Problem(
                    f"not stopped after {output.duration(waited)}: {'; '.join(left)}. "
                    "Remedy: switch.sh none; where that says the same, reboot"
                )
            if clock.now() - self._spoke >= HEARTBEAT_S:
                self._say(f"… waiting for the end of {'; '.join(left)}")
            clock.sleep(0.5)

    def _remove_stray_containers(self, state: State) -> list[str]:
        names = {
            target.container
            for target in self._host.targets.values()
            if target.container and target.unit in state
        }
        if not names:
            return []
        stray = {name for name in names if container_group.processes(name, self._paths)}
        try:
            running = self._docker.running(names)
            stray |= {name for name in running if docker_api.ours(running[name].get("Labels"))}
            for name in sorted(running.keys() - stray):
                self._say(f"container {name} is not Lockstep's and stays")
        except (docker_api.Unreachable, docker_api.DockerError) as error:
            self._say(f"Docker not asked for containers: {error}")
        for name in sorted(stray):
            self._say(f"removing container {name}: it runs outside its unit")
            try:
                stop_container.stop(self._docker, name, 60, self._paths)
            except (docker_api.Unreachable, docker_api.DockerError) as error:
                self._say(f"container {name} was ended, its name is not free yet: {error}")
        return sorted(stray)

    def _start(self, target: config.Target) -> bool:
        """Start a unit and show how far it is; its readiness check is part of the start.

        Raises Cancelled, and then the unit may still be starting.
        """
        self._check_cancelled()
        began = clock.now()
        since = time.time()
        # A unit that hit its start limit would refuse although the operator asks for it.
        runner.run(["systemctl", "reset-failed", "--", target.unit])
        self._say(f"starting {target.name}")
        with journal.JournalTail(target.unit, since, self._say):
            result = self._watched(["systemctl", "start", "--", target.unit], "starting")
        took = output.duration(clock.now() - began)
        unit = units.show([target.unit])[target.unit]
        # A check that is killed together with its engine counts as passed: SIGKILL is among the
        # orderly ends of an engine.
        if result.returncode == 0 and unit.state == "hot":
            brought = self._brought(target.unit, since)
            self._say(f"took: {self._steps}")
            self._say(
                f"{target.name} is hot, started in {took}" + (f", {brought}" if brought else "")
            )
            return True
        self._say(f"{target.name} FAILED after {took}: {unit.failure}")
        # The floor's end of it may be a moment away: it kills first.
        if by_floor := ended.of(self._paths, target.unit):
            self._say(f"  {by_floor.reason}")
        for line in log_phases.reason(units.last_lines(unit.name, 60, since)):
            self._say(f"  {line}")
        return False

    def _brought(self, unit: str, since: float) -> str | None:
        brought = self._steps.started(unit, units.last_lines(unit, 20, since))
        if brought:
            return brought
        # The journal may be a moment behind the unit whose start it tells of.
        with suppress(errors.Problem):
            runner.run(["journalctl", "--sync"], timeout=20)
        return self._steps.started(unit, units.last_lines(unit, 20, since))

    def _check_cancelled(self) -> None:
        if self._cancellable:
            cancellation.check(self._paths, self._began)

    def _watched(
        self, argv: list[str], doing: str, limit_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a blocking systemctl with a heartbeat line; systemd bounds how long a start takes.

        What has no limit can be cancelled: Cancelled, and systemd goes on with it.
        """
        began = clock.now()
        with runner.start(argv) as process:
            while True:
                try:
                    if not limit_s:
                        self._check_cancelled()
                    _, stderr = process.communicate(timeout=min(_LOOK_S, HEARTBEAT_S / 4))
                    return subprocess.CompletedProcess(argv, process.returncode, "", stderr or "")
                except cancellation.Cancelled:
                    process.kill()
                    raise
                except subprocess.TimeoutExpired:
                    now = clock.now()
                    if limit_s and now - began >= limit_s:
                        process.kill()
                        raise errors.Problem(
                            f"{' '.join(argv)} did not end within {limit_s:.0f} s"
                        ) from None
                    if now - self._spoke >= HEARTBEAT_S:
                        self._say(f"… {doing}, {output.duration(now - began)}")
