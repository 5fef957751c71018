"""A switch, step by step: stop what is hot, wait until it is gone, start, watch, roll back.

Everything here runs as root under the unit lockstep-switch.service, so that a lost phone
connection or Ctrl-C ends the watching and not the switch.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common, docker_api, engine, phases, stop_container, units
else:
    import common
    import docker_api
    import engine
    import phases
    import stop_container
    import units

HEARTBEAT_S = 10.0
# One line per few seconds: an engine's log must not push the phone's screen away.
_PHASE_EVERY_S = 3.0
# A hot engine under full load may keep one more request waiting.
_HOT_CANARY_S = 30.0


class Switch:
    """One switch on one host; `say` gets the lines for the operator."""

    def __init__(
        self, host: common.Host, paths: common.Paths, say: Callable[[str], None] = common.say
    ) -> None:
        self._host = host
        self._print = say
        self._spoke = 0.0
        self._paths = paths
        self._docker = docker_api.Docker(paths.docker_socket, timeout=60)

    def to(self, name: str) -> int:
        """Make `name` the one hot target: 0 done, 1 failed (what is hot now is said)."""
        target = self._host.target(name)
        state = self._state()
        if state[target.unit].state == "hot" and not self._up_beside(target, state):
            try:
                return self._already_hot(target)
            except engine.NotReady as answer:
                self._say(f"{name} is up but does not serve ({answer}): restarting it")
        self._preflight(target, state[target.unit])
        previous = self._previous(target, state)
        self._stop_all(state)
        if self._start(target):
            return common.EXIT_DONE
        return self._roll_back(target, previous)

    def none(self) -> int:
        """Stop every target's unit: 0 nothing is hot, 1 something would not end."""
        stopped = self._stop_all(self._state())
        self._say("no model is hot" if stopped else "no model was hot")
        return common.EXIT_DONE

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        self._print(line)

    def _state(self) -> dict[str, units.Unit]:
        return units.show(target.unit for target in self._host.targets.values())

    def _up_beside(
        self, target: common.Target, state: dict[str, units.Unit]
    ) -> list[common.Target]:
        return [other for other in self._host.others(target.name) if state[other.unit].up]

    def _already_hot(self, target: common.Target) -> int:
        engine.check_health(target)
        try:
            canary = engine.canary(target, engine.api_key(target), _HOT_CANARY_S)
        except (engine.NotReady, engine.Refused) as answer:
            raise common.Problem(
                f"{target.name} is hot and /health is green, but it generated nothing within "
                f"{_HOT_CANARY_S:.0f} s ({answer}): busy or wedged. Remedy: switch.sh none, then "
                f"switch.sh {target.name}"
            ) from answer
        self._say(f"{target.name} is hot already ({canary.rate:.1f} tok/s)")
        return common.EXIT_DONE

    def _preflight(self, target: common.Target, unit: units.Unit) -> None:
        """Problem, before anything was stopped, when the start cannot work."""
        if not unit.installed:
            raise common.Problem(
                f"{target.unit} is {unit.load}; nothing was stopped. Remedy: run the deploy"
            )
        total = common.memory(self._paths.proc).total
        if target.memory_gib > total:
            raise common.Problem(
                f"{target.name} needs {target.memory_gib:.1f} GiB, this host has {total:.1f}; "
                "nothing was stopped. Remedy: bind a smaller recipe to the target"
            )
        if target.container and target.image:
            self._image_is_here(target, target.image)

    def _image_is_here(self, target: common.Target, image: str) -> None:
        try:
            self._docker.json("GET", f"/images/{image}/json")
        except docker_api.DockerError as error:
            repository, _, digest = image.partition("@")
            raise common.Problem(
                f"{target.name}: image {repository} {digest[:19]} is not on this host; nothing "
                "was stopped. Remedy: run the deploy, it pulls it"
            ) from error

    def _previous(
        self, target: common.Target, state: dict[str, units.Unit]
    ) -> common.Target | None:
        """The model to bring back when the start fails: one that was up and not failing."""
        for other in self._up_beside(target, state):
            if state[other.unit].state in ("hot", "loading"):
                return other
        return None

    def _stop_all(self, state: dict[str, units.Unit]) -> bool:
        """Stop all targets' units and stray containers; whether there was anything to stop."""
        up = [target for target in self._host.targets.values() if state[target.unit].up]
        names = sorted({target.name for target in up})
        if up:
            stopping = sorted({target.unit for target in up})
            began = time.monotonic()
            self._say(f"stopping {', '.join(names)}")
            result = self._watched(["systemctl", "stop", "--", *stopping], "stopping")
            if result.returncode != 0:
                raise common.Problem(f"systemctl stop failed: {result.stderr.strip()}")
            self._say(f"stopped in {common.duration(time.monotonic() - began)}")
        return bool(self._remove_stray_containers() + names)

    def _remove_stray_containers(self) -> list[str]:
        names = {target.container for target in self._host.targets.values() if target.container}
        if not names:
            return []
        try:
            stray = sorted(self._docker.running(names))
            for name in stray:
                self._say(f"removing container {name}: it runs outside its unit")
                stop_container.stop(self._docker, name, 60)
        except (docker_api.Unreachable, docker_api.DockerError) as error:
            self._say(f"containers not checked: {error}")
            return []
        return stray

    def _start(self, target: common.Target) -> bool:
        """Start a unit and show how far it is; its readiness check is part of the start."""
        began = time.monotonic()
        since = time.time()
        # A unit that hit its start limit would refuse although the operator asks for it.
        # Its proxy, where it has one, has the port that clients ask: without it nothing is hot.
        proxy = [target.roles_unit] if target.roles_unit else []
        common.run(["systemctl", "reset-failed", "--", target.unit, *proxy])
        self._say(f"starting {target.name}")
        with JournalTail(target.unit, since, self._say):
            argv = ["systemctl", "start", "--", target.unit, *proxy]
            result = self._watched(argv, "starting")
        took = common.duration(time.monotonic() - began)
        if result.returncode == 0:
            self._say(f"{target.name} is hot, started in {took}{self._rate(target, since)}")
            return True
        shown = units.show([target.unit, *proxy])
        alone = target.roles_unit and shown[target.unit].state == "hot"
        unit = shown[target.roles_unit if target.roles_unit and alone else target.unit]
        part = f"{unit.name}: " if alone else ""
        self._say(f"{target.name} FAILED after {took}: {part}{unit.failure}")
        for line in phases.reason(units.last_lines(unit.name, 60, since)):
            self._say(f"  {line}")
        return False

    def _rate(self, target: common.Target, since: float) -> str:
        """The canary's tokens per second as the readiness check logged them."""
        for line in reversed(units.last_lines(target.unit, 20, since)):
            if match := re.search(r"lockstep ready: .*\(([\d.]+ tok/s)\)", line):
                return f", {match[1]}"
        return ""

    def _roll_back(self, target: common.Target, previous: common.Target | None) -> int:
        # A unit that restarts itself would come back beside the previous model.
        common.run(["systemctl", "stop", "--", target.unit], timeout=300)
        if previous is None:
            self._say(f"the switch to {target.name} FAILED; no model is hot, as before")
        elif self._start(previous):
            self._say(f"the switch to {target.name} FAILED; {previous.name} is hot again")
        else:
            common.run(["systemctl", "stop", "--", previous.unit], timeout=300)
            self._say(f"NO MODEL IS HOT: {target.name} and {previous.name} both failed")
        return common.EXIT_FAILED

    def _watched(self, argv: list[str], doing: str) -> subprocess.CompletedProcess[str]:
        """Run a blocking systemctl with a heartbeat line; systemd bounds how long it takes."""
        began = time.monotonic()
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            while True:
                try:
                    _, stderr = process.communicate(timeout=HEARTBEAT_S / 4)
                    return subprocess.CompletedProcess(argv, process.returncode, "", stderr or "")
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    if now - self._spoke >= HEARTBEAT_S:
                        self._say(f"… {doing}, {common.duration(now - began)}")


class JournalTail:
    """Says the phases of a unit's start as its journal grows, one line per few seconds."""

    def __init__(self, unit: str, since: float, say: Callable[[str], None]) -> None:
        self._argv = ["journalctl", "--follow", "--quiet", "--output=cat", "--lines=all"]
        self._argv += [f"--since=@{int(since)}", f"--unit={unit}"]
        self._say = say
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except OSError:
            return
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._thread.join(5)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        said, spoke = "", 0.0
        for line in self._process.stdout:
            text = phases.phase(line)
            own = "lockstep " in line
            if text and text != said and (own or time.monotonic() - spoke >= _PHASE_EVERY_S):
                said, spoke = text, time.monotonic()
                self._say(text)
