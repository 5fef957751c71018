"""Restart a hot engine that generates nothing, at a bounded rate, then leave it down.

usage: wedge [--token-wait SECONDS]

Runs every minute as root (lockstep-wedge.timer). If no counter moved since the last look, it asks
for one token, however few requests the engine counts: vLLM's counters freeze with its engine
process, so one that froze at rest looks idle for ever. The engine is wedged if no answer comes in
time, or two fail at once, and still no counter moved. Starts no model that is not hot, does nothing
while somebody is switching, and leaves a cluster's models to the agents. Then it looks at the GPU
(docs/gpu.md).

exit codes: 0 looked, with any finding; 1 the restart or stop failed; 2 wrong use
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lockstep.onhost.core import (
    clock,
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
)
from lockstep.onhost.engine import openai_api
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import gpu_watch
from lockstep.onhost.systemd import units

# A long prompt may delay a small request for a minute or two.
TOKEN_WAIT_S = 120.0
# An engine's own hiccup must not cost a restart that takes minutes.
_AGAIN_S = 5.0
#: Restarts of one engine within so many seconds, after which it is left down.
RESTARTS, WINDOW_S = 2, 3600.0
_LIMIT_S = 300.0  # Of a stop; systemd itself ends one before.


@dataclass
class WedgeWatch:
    """One look at one host."""

    host: config.HostConfig
    paths: layout.Paths
    token_wait_s: float = TOKEN_WAIT_S
    record: watch_findings.WedgeRecord = field(default_factory=watch_findings.WedgeRecord)

    def check_hot_model(self) -> list[config.Model]:
        """Look at the hot model and act; return the models that stay hot.

        None are returned while somebody is switching, nor any of a cluster.

        Raises:
            errors.Problem: The restart or stop failed.
        """
        if switch_lock.holder(self.paths.switch_lock) is not None:
            return []
        state = units.units_by_name(model.unit for model in self.host.models.values())
        # A cluster's agents end it as a whole: a rank is never restarted alone.
        own = [model for model in self.host.models.values() if model.cluster is None]
        hot = [model for model in own if state[model.unit].state == "hot"]
        self.record = watch_findings.load(self.paths).wedge
        well = []
        # The engine itself, because a fault of the gateway before it is not the engine's.
        for model in (hot_model.at_engine_address for hot_model in hot):
            unit = state[model.unit]
            if unit.main_pid != self.record.pid:
                self.record.pid, self.record.counters = unit.main_pid, {}
            reason = self.wedge_reason(model)
            watch_findings.save(self.paths, self.record)
            if reason:
                self.restart_or_stop(model, unit, reason)
            else:
                well.append(model)
        return well

    def wedge_reason(self, model: config.Model) -> str | None:
        """Return why the model counts as wedged; None if it lives or that is unknown."""
        key = openai_api.api_key(model)
        try:
            counters = openai_api.counters(model, key)
        except openai_api.NotReady as answer:
            return self._wedge_reason_by_token(model, key, f"its metrics do not answer ({answer})")
        if counters is not None and counters.moving != self.record.counters:
            self.record.counters = dict(counters.moving)
            return None
        outstanding = counters.outstanding if counters else 0
        return self._wedge_reason_by_token(model, key, f"requests outstanding: {outstanding}")

    def _wedge_reason_by_token(self, model: config.Model, key: str | None, why: str) -> str | None:
        """Ask for a token, at most twice; return why that makes it wedged, or None if it lives."""
        began = self.record.asked_at = clock.now()
        # Saved first, so that readers of the engine's counters know of this request.
        watch_findings.save(self.paths, self.record)
        for attempt in (1, 2):
            seconds_left = self.token_wait_s - (clock.now() - began)
            failure = self._token_failure(model, key, max(1.0, seconds_left))
            # First the counters: what this question moved is no life at the next look.
            if self._has_engine_worked(model, key) or failure is None:
                return None
            waited_s = clock.now() - began
            if attempt == 2 or waited_s >= self.token_wait_s:
                break
            clock.sleep(_AGAIN_S)
        return f"no token in {waited_s:.0f} s ({failure}); {why}"

    def _token_failure(self, model: config.Model, key: str | None, limit_s: float) -> str | None:
        """Ask for a token; return what came instead, or None."""
        try:
            openai_api.ask_test_question(model, key, limit_s, tokens=1)
        except openai_api.NotReady as answer:
            return str(answer)
        except openai_api.RequestRefusal:
            # It answers; a fault of the question is no wedge.
            return None
        return None

    def _has_engine_worked(self, model: config.Model, key: str | None) -> bool:
        try:
            counters = openai_api.counters(model, key)
        except openai_api.NotReady:
            return False
        if counters is None or counters.moving == self.record.counters:
            return False
        self.record.counters = dict(counters.moving)
        return True

    def restart_or_stop(self, model: config.Model, wedged_unit: units.Unit, reason: str) -> None:
        """Restart, or stop for good after `RESTARTS` restarts within `WINDOW_S`."""
        try:
            with switch_lock.hold_lock(self.paths.switch_lock, "the wedge watch", model.name):
                unit = units.units_by_name([model.unit])[model.unit]
                if unit.state != "hot" or unit.main_pid != wedged_unit.main_pid:
                    return
                self._restart_or_stop(model, reason)
        except switch_lock.SwitchUnderWay as problem:
            write_to_journal(f"{model.name}: {reason}; left to who is switching: {problem}")

    def _restart_or_stop(self, model: config.Model, reason: str) -> None:
        now = clock.now()
        earlier_deeds = [deed for deed in self.record.deeds if deed.unit == model.unit]
        down = sum(now - deed.at < WINDOW_S for deed in earlier_deeds) >= RESTARTS
        deed = watch_findings.Deed(model.unit, now, time.time(), reason, left_down=down)
        self.record.deeds = [*self.record.deeds[-19:], deed]
        watch_findings.save(self.paths, self.record)
        if down:
            write_to_journal(
                f"{model.name}: {reason}; {RESTARTS} restarts in an hour did not help: left down"
            )
            units.control_units("stop", model.unit, limit_s=_LIMIT_S)
            return
        write_to_journal(f"{model.name}: {reason}; restarting {model.unit}")
        # The unit's start limit is for crashes, and must not refuse this restart after the stop.
        units.try_to_control("reset-failed", model.unit)
        # The lock must be free while the engine loads, so this does not wait.
        units.control_units("restart", model.unit, options=("--no-block",))


def write_to_journal(line: str) -> None:
    """Write one line to the journal."""
    event_lines.say(f"lockstep wedge: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("--token-wait", type=float, default=TOKEN_WAIT_S, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.models)
    well = WedgeWatch(host, paths, options.token_wait).check_hot_model()
    gpu_watch.GpuState(host, paths).check_and_record(next(iter(well), None))
    return errors.EXIT_DONE
