"""Restart a hot engine that generates nothing, at a bounded rate, then leave it down.

usage: wedge [--token-wait SECONDS]

Runs every minute as root (lockstep-wedge.timer). Requests outstanding and no counter moved since
the last look, or no sign of life for five minutes: it asks for one token. No answer in time, or two
that fail at once, and still no counter moved: wedged. Starts no model that is not hot, does nothing
while somebody is switching, and leaves a cluster's targets to the agents. Then it looks at the
GPU (docs/gpu.md).

exit codes: 0 looked, whatever was found; 1 the restart or stop failed; 2 wrong use
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lockstep.onhost.core import clock, config, errors, layout, output, program, runner, switch_lock
from lockstep.onhost.engine import openai_api
from lockstep.onhost.switching import gpu_watch, wedge_state
from lockstep.onhost.systemd import units

# A long prompt may hold a small request back for a minute or two.
TOKEN_WAIT_S = 120.0
# vLLM's gauges freeze with its engine process: a wedge before the first request looks idle.
IDLE_S = 300.0
# An engine's own hiccup must not cost a restart that takes minutes.
_AGAIN_S = 5.0
#: Restarts of one engine within so many seconds, after which it is left down.
RESTARTS, WINDOW_S = 2, 3600.0


@dataclass
class Watch:
    """One look at one host."""

    host: config.Host
    paths: layout.Paths
    token_wait_s: float = TOKEN_WAIT_S
    record: wedge_state.Record = field(default_factory=wedge_state.Record)
    idle_s: float = IDLE_S

    def look(self) -> list[config.Target]:
        """Look at the hot target and act; the targets that stay hot. Problem when the act failed.

        None are told while somebody is switching, nor of a cluster.
        """
        if switch_lock.holder(self.paths.switch_lock) is not None:
            return []
        state = units.show(target.unit for target in self.host.targets.values())
        # A group is its own agents' to end, as a whole: a rank is never restarted alone.
        own = [target for target in self.host.targets.values() if target.cluster is None]
        hot = [target for target in own if state[target.unit].state == "hot"]
        self.record = wedge_state.load(self.paths)
        well = []
        # Of the gateway before it, no engine is guilty.
        for target in (each.itself for each in hot):
            unit = state[target.unit]
            if unit.main_pid != self.record.pid:
                self.record.pid, self.record.counters = unit.main_pid, {}
                self.record.alive_at = clock.now()
            reason = self.verdict(target)
            wedge_state.save(self.paths, self.record)
            if reason:
                self.act(target, unit, reason)
            else:
                well.append(target)
        return well

    def verdict(self, target: config.Target) -> str | None:
        """Why the target counts as wedged, None when it lives or nothing can be told."""
        key = openai_api.api_key(target)
        try:
            found = openai_api.counters(target, key)
        except openai_api.NotReady as answer:
            return self._no_token(target, key, f"its metrics do not answer ({answer})")
        moved = found is not None and found.moving != self.record.counters
        outstanding = found.outstanding if found else 0
        if found:
            self.record.counters = dict(found.moving)
        if moved:
            self.record.alive_at = clock.now()
        if moved or (not outstanding and clock.now() - self.record.alive_at < self.idle_s):
            return None
        return self._no_token(target, key, f"requests outstanding: {outstanding}")

    def _no_token(self, target: config.Target, key: str | None, why: str) -> str | None:
        """Ask for a token, at most twice; why that makes it wedged, None when it lives."""
        began = self.record.asked_at = clock.now()
        # Before it asks: who counts the engine's requests is to know this one.
        wedge_state.save(self.paths, self.record)
        for attempt in (1, 2):
            left = self.token_wait_s - (clock.now() - began)
            said = self._token(target, key, max(1.0, left))
            if said is None or self._moved(target, key):
                self.record.alive_at = clock.now()
                return None
            waited = clock.now() - began
            if attempt == 2 or waited >= self.token_wait_s:
                break
            clock.sleep(_AGAIN_S)
        return f"no token in {waited:.0f} s ({said}); {why}"

    def _token(self, target: config.Target, key: str | None, limit_s: float) -> str | None:
        """What it answered instead of a token."""
        try:
            openai_api.canary(target, key, limit_s, tokens=1)
        except openai_api.NotReady as answer:
            return str(answer)
        except openai_api.Refused:
            # It answers; what is wrong with the question is no wedge.
            return None
        return None

    def _moved(self, target: config.Target, key: str | None) -> bool:
        try:
            found = openai_api.counters(target, key)
        except openai_api.NotReady:
            return False
        if found is None or found.moving == self.record.counters:
            return False
        self.record.counters = dict(found.moving)
        return True

    def act(self, target: config.Target, seen: units.Unit, reason: str) -> None:
        """Restart, or stop for good after `RESTARTS` restarts within `WINDOW_S`."""
        try:
            with switch_lock.held(self.paths.switch_lock, "the wedge watch", target.name):
                unit = units.show([target.unit])[target.unit]
                if unit.state != "hot" or unit.main_pid != seen.main_pid:
                    return
                self._act(target, reason)
        except switch_lock.Locked as problem:
            tell(f"{target.name}: {reason}; left to who is switching: {problem}")

    def _act(self, target: config.Target, reason: str) -> None:
        now = clock.now()
        mine = [deed for deed in self.record.deeds if deed.unit == target.unit]
        down = sum(now - deed.at < WINDOW_S for deed in mine) >= RESTARTS
        deed = wedge_state.Deed(target.unit, now, time.time(), reason, left_down=down)
        self.record.deeds = [*self.record.deeds[-19:], deed]
        wedge_state.save(self.paths, self.record)
        if down:
            tell(f"{target.name}: {reason}; {RESTARTS} restarts in an hour did not help: left down")
            _systemctl("stop", target.unit)
            return
        tell(f"{target.name}: {reason}; restarting {target.unit}")
        # Its own start limit is for crashes, and must not refuse this restart after the stop.
        runner.run(["systemctl", "reset-failed", "--", target.unit])
        # Not waited for: the lock must be free while the engine loads.
        _systemctl("restart", "--no-block", target.unit)


def _systemctl(*words: str) -> None:
    done = runner.run(["systemctl", *words], timeout=300)
    if done.returncode != 0:
        raise errors.Problem(f"systemctl {' '.join(words)} failed: {done.stderr.strip()}")


def tell(line: str) -> None:
    """One line for the journal."""
    output.say(f"lockstep wedge: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("--token-wait", type=float, default=TOKEN_WAIT_S, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.targets)
    well = Watch(host, paths, options.token_wait).look()
    gpu_watch.Look(host, paths).take(next(iter(well), None))
    return errors.EXIT_DONE
