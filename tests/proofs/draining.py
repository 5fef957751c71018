"""Memory that falls while an engine loads, rests or answers: the memory watch ends it, or not.

`python tests/proofs/draining.py --runs 300 --seed 7` makes so many runs in which memory falls below
the minimum, and as many in which it only falls near. `make test` makes two of them.
"""

import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import faults
import runner
import soaking
from stack import INVENTORY, SWITCH, Follower, Host, until

MINIMUMS = {"loading": 8.0, "idle": 4.0, "request": 4.0}
#: What the stand-ins hold; both fit, and leave a fall of a few GiB to the minimum.
HELD_GIB = {"qwen": 70.0, "mistral": 96.0, "mistral-fallback": 96.0}
PORTS = {"qwen": 30001, "mistral": 30000, "mistral-fallback": 30000}
#: An engine must be gone before so much is missing from its minimum.
LATE_GIB = 1.0
LATE = "ended"
_SETTLE_S = 90.0
_SAMPLER = """
import json, sys, time
from pathlib import Path

exec(sys.argv[1].replace('if __name__ == "__main__":', 'if False:'))
known, looked, told = set(), 0.0, None


def alive(pid):
    try:
        return bool(Path("/proc", pid, "cmdline").read_bytes())
    except OSError:
        return False


def pids():
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if engine(Path("/proc", name, "cmdline").read_bytes().split(b"\\0")[:-1]):
                found.add(name)
        except OSError:
            pass
    return found


while True:
    now = time.monotonic()
    if now - looked >= 0.2:
        known, looked = pids(), now
    text = Path("/proc/meminfo").read_text()
    gib = int(text.split("MemAvailable:")[1].split()[0]) / 1024**2
    up = any(map(alive, known))
    if gib < 12 or up != (told or (None,))[0] or now - told[1] >= 0.3:
        told = up, now
        print(json.dumps([up, round(gib, 3)]), flush=True)
    time.sleep(0.02)
"""


@dataclass
class Run(runner.Run):
    """A run as it stands in the record.

    `rate` is in GiB a second, `least_gib` the least MemAvailable with the engine alive, `ssh_s` the
    slowest login while memory fell.
    """

    clean: bool = False
    model: str = ""
    phase: str = ""
    rate: float = 0.0
    least_gib: float = float("inf")
    ssh_s: float = 0.0
    earlier_hot: str | None = None
    hot: str | None = None

    @property
    def key(self) -> object:
        """A number has a run of each kind."""
        return self.number, self.clean


class Sampler(Follower):
    """The memory that a host shows, 50 times a second, and whether an engine is alive then."""

    def __init__(self, host: Host) -> None:
        command = f"sudo -n python3 -u -c {shlex.join((_SAMPLER, soaking.WATCHER))}"
        super().__init__(lambda: host.begin(command), self._read)
        self._lock = threading.Lock()
        self._least = float("inf")
        self.alive = self.has_ended = False

    def _read(self, line: str) -> None:
        if not line.startswith("["):
            return
        up, gib = json.loads(line)
        with self._lock:
            self.has_ended |= self.alive and not up
            self.alive = up
            if up and not self.has_ended:
                self._least = min(self._least, gib)

    def begin(self) -> None:
        """Forget the least memory so far, and any end of an engine."""
        with self._lock:
            self._least, self.has_ended = float("inf"), False

    def least(self) -> float:
        """The least MemAvailable from `begin` to an engine's end, of all samples so far."""
        self.line_event.clear()
        until(self.line_event.is_set, "the sampler samples")
        with self._lock:
            return self._least


class Drain:
    """Runs on one host; the model that is hot after a run is hot at the begin of the next."""

    def __init__(self, trial: runner.Trial[Run], host: Host, sampler: Sampler) -> None:
        self._trial, self._stack, self._host, self._sampler = trial, trial.stack, host, sampler

    def make(self, run: Run) -> None:
        """Make one run; its seed decides everything but durations."""
        chance = self._trial.chance(run.number, run.clean)
        self._run, run.host = run, self._host.name
        run.model, run.phase = chance.choice(["qwen", "mistral"]), chance.choice(list(MINIMUMS))
        # An engine that loads must still load when the minimum is reached.
        run.rate = round(chance.uniform(1.5 if run.phase == "loading" else 0.5, 4.0), 2)
        lead, wait = 0.7 + run.rate * chance.uniform(0.0, 0.7), chance.uniform(0.0, 1.0)
        try:
            run.earlier_hot = self._ready_for(run.model, run.phase)
            with self._at_work(lead, wait) as ends:
                self._near(lead) if run.clean else self._fall()
                run.least_gib = round(self._sampler.least(), 3)
                self._stack.memory(self._host)
                ends()
            run.hot = self._host.status()["hot"] if run.clean else self._settled_hot(run.model)
            run.violations += filter(None, [self._violation(run)])
        except (AssertionError, subprocess.TimeoutExpired) as error:
            # The memory is back at once, and the next run makes the state that it needs.
            run.violations.append(str(error)[:1500])
        finally:
            self._stack.memory(self._host)
        if run.ssh_s > 10:
            run.violations.append(f"a login took {run.ssh_s:.1f} s")

    def _ready_for(self, model: str, phase: str) -> str | None:
        """Make the model hot, unless the phase loads it; returns the model that was hot before."""
        knobs = {**faults.QUICK, "need_memory": False}
        knobs |= {"load_seconds": 5.0} if phase == "loading" else {}
        for engine, name in (("vllm", "qwen"), ("sglang", "mistral")):
            self._host.root(faults.put_knobs({**knobs, "memory_gib": HELD_GIB[name]}, (engine,)))
        hot: str | None = self._host.status()["hot"]
        if phase == "loading":
            if hot == model:
                self._host.root(f"{SWITCH} none")
                hot = None
            return hot
        if hot != model:
            self._host.root(f"{SWITCH} {model}")
            return hot
        # As the host itself remembers it.
        record = json.loads(
            self._host.root("cat /run/lockstep/hot-change.json || echo '{\"hot\": null}'")
        )
        return record["previous"] if record["hot"] == model else None

    def _level(self) -> float:
        """Memory at which the model's engine reaches its minimum."""
        return HELD_GIB[self._run.model] + MINIMUMS[self._run.phase]

    def _fall(self) -> None:
        """Let memory fall far below the minimum, until the engine is ended."""
        self._stack.memory(self._host, self._level() - 3.5, self._run.rate)
        message = f"{self._run.model} is ended at {self._run.rate} GiB a second"
        until(self._has_ended, message, 60)

    def _near(self, lead: float) -> None:
        """Let memory fall to a little above the minimum."""
        margin = 0.2 + lead / 10
        self._stack.memory(self._host, self._level() + margin, self._run.rate)
        time.sleep((lead - margin) / self._run.rate + 0.8)

    def _has_ended(self) -> bool:
        began = time.monotonic()
        assert self._host.run("true").code == 0, "no login while memory falls"
        self._run.ssh_s = max(self._run.ssh_s, round(time.monotonic() - began, 2))
        return self._sampler.has_ended

    def _settled_hot(self, model: str) -> str | None:
        """The hot model when no switch is under way any more."""

        def quiet() -> dict[str, Any] | None:
            self._host.root(f"timeout {_SETTLE_S:.0f} {SWITCH} wait >/dev/null || true")
            status = self._host.status()
            is_explained = status["hot"] or "NO MODEL IS HOT" in str(status["last_switch"])
            return status if is_explained and not status["switching"] else None

        final_status = until(
            quiet, f"after {model} was ended something is hot, or it is said why not"
        )
        assert final_status is not None
        return final_status["hot"]

    def _violation(self, run: Run) -> str:
        if run.clean:
            return "" if run.hot == run.model else f"{run.model} was ended above its minimum"
        end_reason = self._host.status()["models"][run.model]["memory_kill"]
        if run.hot == run.model:
            return f"{run.model} was started again"
        if not end_reason:
            return f"status does not say why {run.model} was ended"
        if run.hot not in {None, run.earlier_hot, soaking.FALLBACK.get(run.model)}:
            return f"{run.hot} is hot, {run.earlier_hot} was before {run.model}"
        if run.least_gib < MINIMUMS[run.phase] - LATE_GIB:
            return f"{LATE} at {run.least_gib:.2f} GiB, the minimum is {MINIMUMS[run.phase]:.0f}"
        return ""

    @contextmanager
    def _at_work(self, lead: float, wait: float) -> Iterator[Callable[[], None]]:
        """A model that loads, rests or answers, with a little more memory than its minimum.

        Gives what waits for the end of its client.
        """
        model, phase = self._run.model, self._run.phase
        host, sampler, level = self._host, self._sampler, self._level() + lead
        clients: list[subprocess.Popen[str]] = []

        def end() -> None:
            for client in clients:
                if phase != "loading":
                    client.kill()
                client.communicate(timeout=_SETTLE_S)

        try:
            if phase == "loading":
                clients.append(host.begin(f"{SWITCH} {model}"))
                unit = soaking.UNITS[model]
                until(lambda: host.show(unit, "SubState") == "start-post", f"{model} loads", 60)
                until(lambda: sampler.alive, f"the engine of {model} is seen", 10)
                self._stack.memory(host, level)
                # Its process is seen before it holds anything; at once all would look too late.
                sampler.begin()
                half = level - HELD_GIB[model] / 2
                until(lambda: sampler.least() < half, f"{model} holds its memory", 10)
            else:
                self._stack.memory(host, level)
            if phase == "request":
                body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
                data = json.dumps({**body, "ignore_eos": True, "max_tokens": 900})
                url = f"http://127.0.0.1:{PORTS[model]}/v1/chat/completions"
                clients.append(host.begin(f"curl -sN -d '{data}' {url}"))
            # A moment, not a condition.
            time.sleep(wait)
            sampler.begin()
            yield end
        finally:
            for client in clients:
                client.kill()
                client.wait()


def prove(trial: runner.Trial[Run], runs: list[Run] | None = None) -> None:
    """Make the runs, or so many of each kind, shared among the hosts."""
    planned_runs = runs or [
        Run(number, clean=clean) for number in range(trial.options.runs) for clean in (False, True)
    ]

    def on(host: Host) -> None:
        hosts = trial.stack.hosts
        share = [run for run in planned_runs if hosts[run.number % len(hosts)] == host]
        host.switch("none")
        with Sampler(host) as sampler:
            drain = Drain(trial, host, sampler)
            for run in trial.remaining(share):
                trial.make(run, drain.make)
        faults.clear_knobs(host)

    trial.on_hosts(on)


def figures(trial: runner.Trial[Run]) -> Iterator[str]:
    """The counts of each kind."""
    for clean in (False, True):
        runs = [run for run in trial.runs if run.clean == clean]
        if not runs:
            continue
        under = max(MINIMUMS[run.phase] - run.least_gib for run in runs)
        yield runner.counts("clean" if clean else "falling", (run.phase for run in runs))
        yield f"  least with an engine, below its minimum: {under:.2f} GiB at worst"
        yield f"  slowest login {max(run.ssh_s for run in runs):.1f} s"
        if not clean:
            names = [str(run.hot).rpartition("-")[2] for run in runs]
            yield runner.counts("  hot afterwards", names)


PROOF = runner.Proof(__doc__, "drain", Run, prove, figures, {"runs": 300}, lambda stack: INVENTORY)

if __name__ == "__main__":
    sys.exit(PROOF.main())
