"""Memory that falls while an engine loads, rests or answers, seeded: the memory watch ends it, or
not.

`python tests/proofs/draining.py --runs 300 --seed 7` makes so many runs in which memory falls below
the minimum, and as many in which it only falls near. Each is a line of JSON in a file; recorded
runs are not made again. `tests/lab/switching/test_memory.py` makes a few.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faults
import run_record
import soaking
from stack import Host, Stack, lend_lab, until

from lab import control
from lab.core.state import open_lab

SWITCH = soaking.SWITCH
USUAL_GIB = soaking.USUAL_GIB
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


@dataclass(frozen=True)
class Run:
    """A run as it stands in the file.

    `rate` is in GiB a second, `least_gib` the least MemAvailable with the engine alive, `ssh_s` the
    slowest login while memory fell.
    """

    number: int
    clean: bool
    host: str
    model: str
    phase: str
    rate: float
    least_gib: float
    ssh_s: float
    took_s: float
    earlier_hot: str | None
    hot: str | None
    violation: str = ""


class Sampler:
    """The memory that a host shows, 50 times a second, and whether an engine is alive then."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._least = float("inf")
        self.alive = self.has_ended = False
        self.sample_event = threading.Event()

    def __enter__(self) -> Sampler:
        words = " ".join(map(soaking._shell_word, (_SAMPLER, soaking.WATCHER)))
        self._process = self._host.begin(f"sudo -n python3 -u -c {words}")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(self.sample_event.is_set, f"{self._host.name}: the sampler samples")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._thread.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("["):
                continue
            up, gib = json.loads(line)
            with self._lock:
                self.has_ended |= self.alive and not up
                self.alive = up
                if up and not self.has_ended:
                    self._least = min(self._least, gib)
            self.sample_event.set()

    def begin(self) -> None:
        """Forget the least memory so far, and any end of an engine."""
        with self._lock:
            self._least, self.has_ended = float("inf"), False

    def least(self) -> float:
        """The least MemAvailable from `begin` to an engine's end, of all samples so far."""
        self.sample_event.clear()
        until(self.sample_event.is_set, f"{self._host.name}: the sampler samples")
        with self._lock:
            return self._least


class Drain:
    """Runs on one host; the model that is hot after a run is hot at the begin of the next."""

    def __init__(self, stack: Stack, host: Host, sampler: Sampler) -> None:
        self._stack, self._host, self._sampler = stack, host, sampler
        self._ssh_s = 0.0

    def run(self, number: int, seed: int, clean: bool) -> Run:
        """Make one run; its seed decides everything but durations."""
        chance = random.Random(f"{seed} {number} {clean}")
        model, phase = chance.choice(["qwen", "mistral"]), chance.choice(list(MINIMUMS))
        # An engine that loads must still load when the minimum is reached.
        rate = round(chance.uniform(1.5 if phase == "loading" else 0.5, 4.0), 2)
        lead, wait = 0.7 + rate * chance.uniform(0.0, 0.7), chance.uniform(0.0, 1.0)
        began, self._ssh_s = time.monotonic(), 0.0
        earlier_hot, least, hot, violation = None, float("inf"), None, ""
        try:
            earlier_hot = self._ready_for(model, phase)
            if clean:
                least = self._near(model, phase, rate, lead, wait)
                hot = self._status()["hot"]
                if hot != model:
                    violation = f"{model} was ended above its minimum"
            else:
                least, hot = self._fall(model, phase, rate, lead, wait)
                violation = self._violation(model, phase, earlier_hot, hot, least)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            violation = str(error)[:1500]
        finally:
            self._memory(USUAL_GIB)
        if self._ssh_s > 10:
            violation = violation or f"a login took {self._ssh_s:.1f} s"
        took = round(time.monotonic() - began, 1)
        return Run(
            number, clean, self._host.name, model, phase, rate, round(least, 3),
            round(self._ssh_s, 2), took, earlier_hot, hot, violation,
        )  # fmt: skip

    def _ready_for(self, model: str, phase: str) -> str | None:
        """Make the model hot, unless the phase loads it; returns the model that was hot before."""
        knobs = {**faults.QUICK, "need_memory": False}
        knobs |= {"load_seconds": 5.0} if phase == "loading" else {}
        for engine, name in (("vllm", "qwen"), ("sglang", "mistral")):
            text = soaking._shell_word(json.dumps({**knobs, "memory_gib": HELD_GIB[name]}))
            self._root(f"printf %s {text} > {faults.KNOBS}/standin-{engine}.json")
        hot: str | None = self._status()["hot"]
        if phase == "loading":
            if hot == model:
                self._root(f"{SWITCH} none")
                hot = None
            return hot
        if hot != model:
            self._root(f"{SWITCH} {model}")
            return hot
        # As the host itself remembers it.
        record = json.loads(
            self._root("cat /run/lockstep/hot-before.json || echo '{\"hot\": null}'")
        )
        return record["before"] if record["hot"] == model else None

    def _fall(
        self, model: str, phase: str, rate: float, lead: float, wait: float
    ) -> tuple[float, str | None]:
        """Let memory fall far below the minimum; returns the least memory, and the hot model."""
        goal = HELD_GIB[model] + MINIMUMS[phase] - 3.5
        with self._at_work(model, phase, lead, wait) as ends:
            self._memory(goal, rate)
            until(self._has_ended, f"{model} is ended at {rate} GiB a second", 60)
            least = self._sampler.least()
            self._memory(USUAL_GIB)
            ends()
        return least, self._settled_hot(model)

    def _near(self, model: str, phase: str, rate: float, lead: float, wait: float) -> float:
        """Let memory fall to a little above the minimum, and rise again."""
        margin = 0.2 + lead / 10
        with self._at_work(model, phase, lead, wait) as ends:
            held_gib = HELD_GIB[model]
            self._memory(held_gib + MINIMUMS[phase] + margin, rate)
            time.sleep((lead - margin) / rate + 0.8)
            least = self._sampler.least()
            self._memory(USUAL_GIB)
            ends()
        return least

    def _at_work(self, model: str, phase: str, lead: float, wait: float) -> _AtWork:
        return _AtWork(self, model, phase, lead, wait)

    def _has_ended(self) -> bool:
        began = time.monotonic()
        self._host.root("true")
        self._ssh_s = max(self._ssh_s, time.monotonic() - began)
        return self._sampler.has_ended

    def _settled_hot(self, model: str) -> str | None:
        """The hot model when no switch is under way any more."""

        def quiet() -> dict[str, Any] | None:
            self._root(f"timeout {_SETTLE_S:.0f} {SWITCH} wait >/dev/null || true")
            status = self._status()
            is_explained = status["hot"] or "NO MODEL IS HOT" in str(status["last_switch"])
            return status if is_explained and not status["switching"] else None

        final_status = until(
            quiet, f"after {model} was ended something is hot, or it is said why not"
        )
        assert final_status is not None
        hot: str | None = final_status["hot"]
        return hot

    def _violation(
        self, model: str, phase: str, earlier_hot: str | None, hot: str | None, least: float
    ) -> str:
        status = self._status()
        end_reason = status["models"][model]["memory_kill"]
        if hot == model:
            return f"{model} was started again"
        if not end_reason:
            return f"status does not say why {model} was ended"
        if hot not in {None, earlier_hot, soaking.FALLBACK.get(model)}:
            return f"{hot} is hot, {earlier_hot} was before {model}"
        if least < MINIMUMS[phase] - LATE_GIB:
            return f"{LATE} at {least:.2f} GiB, the minimum is {MINIMUMS[phase]:.0f}"
        return ""

    def _status(self) -> dict[str, Any]:
        return self._host.status()

    def _root(self, command: str) -> str:
        return self._host.root(command)

    def _memory(self, gib: float, rate: float | None = None) -> None:
        lab = open_lab(self._stack.name)
        control.ask(lab, "memory", host=self._host.name, available=gib, rate=rate)


class _AtWork:
    """A model that loads, rests or answers, with a little more memory than its minimum."""

    def __init__(self, drain: Drain, model: str, phase: str, lead: float, wait: float) -> None:
        self._drain, self._model, self._phase = drain, model, phase
        self._lead, self._wait = lead, wait
        self._client: subprocess.Popen[str] | None = None

    def __enter__(self) -> Callable[[], None]:
        drain, model, phase = self._drain, self._model, self._phase
        host, sampler = drain._host, drain._sampler
        level = HELD_GIB[model] + MINIMUMS[phase] + self._lead
        if phase == "loading":
            self._client = host.begin(f"{SWITCH} {model}")
            unit = soaking.UNITS[model]
            until(lambda: host.show(unit, "SubState") == "start-post", f"{model} loads", 60)
            until(lambda: sampler.alive, f"the engine of {model} is seen", 10)
            drain._memory(level)
            # Its process is seen before it holds anything; taken at once, all would look too late.
            sampler.begin()
            held_gib = HELD_GIB[model] / 2
            until(lambda: sampler.least() < level - held_gib, f"{model} holds its memory", 10)
        else:
            drain._memory(level)
            if phase == "request":
                body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
                data = json.dumps({**body, "ignore_eos": True, "max_tokens": 900})
                url = f"http://127.0.0.1:{PORTS[model]}/v1/chat/completions"
                self._client = host.begin(f"curl -sN -d '{data}' {url}")
        # A moment, not a condition.
        time.sleep(self._wait)
        sampler.begin()
        return self._end

    def _end(self) -> None:
        if self._client is None:
            return
        if self._phase != "loading":
            self._client.kill()
        self._client.communicate(timeout=_SETTLE_S)
        self._client = None

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.kill()
            self._client.communicate()


def drain_hosts(
    stack: Stack,
    remaining_runs: list[tuple[int, bool]],
    seed: int,
    keep_run: Callable[[Run], object],
) -> None:
    """Make the remaining runs (number, whether it is a clean one) on all hosts at once."""
    lock = threading.Lock()

    def on(host: Host) -> None:
        host.switch("none")
        with Sampler(host) as sampler:
            drain = Drain(stack, host, sampler)
            while True:
                with lock:
                    if not remaining_runs:
                        break
                    number, clean = remaining_runs.pop(0)
                finished_run = drain.run(number, seed, clean)
                with lock:
                    keep_run(finished_run)
        host.root(f"rm -f {faults.KNOBS}/standin-*.json")
        host.switch("none")

    with ThreadPoolExecutor(len(stack.hosts)) as pool:
        try:
            for job in [pool.submit(on, host) for host in stack.hosts]:
                job.result()
        finally:
            # Who interrupts waits for the runs that are under way, not for all.
            remaining_runs.clear()


def report(runs: list[Run]) -> str:
    """The counts as text."""
    lines = []
    for clean in (False, True):
        kind_runs = [run for run in runs if run.clean == clean]
        if not kind_runs:
            continue
        under = [MINIMUMS[run.phase] - run.least_gib for run in kind_runs]
        where = Counter(
            "nothing" if run.hot is None else "fallback" if "fallback" in run.hot else "before"
            for run in kind_runs
        )
        lines += [
            f"{'clean' if clean else 'falling'}: {len(kind_runs)} runs "
            f"{dict(sorted(Counter(run.phase for run in kind_runs).items()))}",
            f"  least with an engine, below its minimum: {max(under):.2f} GiB at worst",
            f"  slowest login {max(run.ssh_s for run in kind_runs):.1f} s, "
            f"a run {sum(run.took_s for run in kind_runs) / len(kind_runs):.1f} s",
            *([] if clean else [f"  hot afterwards: {dict(sorted(where.items()))}"]),
            f"  violations {sum(bool(run.violation) for run in kind_runs)}",
            *(f"    {run.number}: {run.violation}" for run in kind_runs if run.violation),
        ]
    return "\n".join(lines)


def main() -> int:
    """Command line; the exit code is 1 when the rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--file", type=Path, default=Path("draining.jsonl"))
    parser.add_argument("--limit", type=float, help="seconds after which no run is begun")
    parser.add_argument("--lab", help="a lab that is up and deployed")
    options = parser.parse_args()
    runs = run_record.read(options.file, Run)
    finished_runs = {(run.number, run.clean) for run in runs}
    wanted_runs = [(number, clean) for number in range(options.runs) for clean in (False, True)]
    give_up = time.monotonic() + options.limit if options.limit else float("inf")

    def keep_run(run: Run) -> None:
        runs.append(run)
        run_record.add(options.file, run)
        print(asdict(run), flush=True)
        if time.monotonic() > give_up:
            remaining_runs.clear()

    remaining_runs = [run_key for run_key in wanted_runs if run_key not in finished_runs]
    with lend_lab(options.lab, "drain") as stack:
        if not options.lab:
            stack.good_deploy()
        drain_hosts(stack, remaining_runs, options.seed, keep_run)
    print(report(runs))
    return 1 if any(run.violation for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
