"""Random switches with faults thrown in, seeded: counts, and breaches of the rule.

    python tests/proofs/soaking.py --switches 3000 --seed 1 --record FILE

Each round adds a line of JSON to FILE; a call with the same seed and FILE goes on behind its last
line. `make soak` runs a shorter one, `tests/lab/switching/test_switch_faults.py` a short one.
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
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faults
import run_record
from stack import Host, Stack, lend_lab, until

from lab import control
from lab.core.state import open_lab

UNITS = {
    "qwen": "vllm-qwen36.service",
    "mistral": "sglang-mistral4.service",
    "mistral-fallback": "sglang-mistral4-fallback.service",
}
FALLBACK = {"mistral": "mistral-fallback"}
SWITCH = "/data/scripts/llm/switch.sh"
WATCHER = Path(__file__).with_name("watcher.py").read_text()
#: A model that is never ready fails after so many seconds.
START_TIMEOUT_S = 12
HOT_BEFORE = "/run/lockstep/hot-before.json"
USUAL_GIB = 118.0
#: Memory without engines that leaves a hot qwen, the smallest, 3 GiB: less than its minimum of 4.
FALLEN_GIB = 70.0
_SETTLE_S = 240.0


@dataclass
class Round:
    """One round on one host: its fault, its switches' exit codes, the breaches of the rule."""

    host: str
    number: int
    fault: str | None = None
    codes: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


@dataclass
class Counts:
    """Counts of a soak; `violations` are sentences."""

    switches: int = 0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    longest_gap_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, finished_round: Round) -> None:
        """Count a round that has ended."""
        self.rounds += 1
        self.switches += len(finished_round.codes)
        self.faults.update([finished_round.fault] if finished_round.fault else [])
        self.codes.update(finished_round.codes)
        self.violations += finished_round.violations

    def report(self) -> str:
        """The counts as text."""
        lines = [
            f"switches      {self.switches} in {self.rounds} rounds",
            f"faults        {sum(self.faults.values())} of {len(self.faults)} kinds",
            *(f"  {count:4}  {name}" for name, count in sorted(self.faults.items())),
            f"exit codes    {dict(sorted(self.codes.items()))}",
            f"samples       {self.samples}, longest gap {self.longest_gap_s:.2f} s",
            f"violations    {len(self.violations)}",
            *(f"  {text}" for text in self.violations),
        ]
        return "\n".join(lines)


class Watcher:
    """Follows watcher.py on one host over a connection of its own, again after a power cut."""

    def __init__(self, host: Host, counts: Counts) -> None:
        self._host, self._counts = host, counts
        self._end = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.sample_event = threading.Event()

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._process:
            self._process.kill()
        self._thread.join(10)

    def _follow(self) -> None:
        while not self._end.is_set():
            self._process = self._host.begin(f"sudo -n python3 -u -c {_shell_word(WATCHER)}")
            assert self._process.stdout is not None
            earlier_samples = 0
            for line in self._process.stdout:
                if line.startswith("{"):
                    earlier_samples = self._read(json.loads(line), earlier_samples)
            self._process.wait()
            self._end.wait(0.5)

    def _read(self, record: dict[str, Any], earlier_samples: int) -> int:
        if "violation" in record:
            engines = " AND ".join(line[:160] for line in record["violation"])
            self._counts.violations.append(f"{self._host.name}: two engines alive: {engines}")
            return earlier_samples
        self._counts.samples += record["samples"] - earlier_samples
        self._counts.longest_gap_s = max(self._counts.longest_gap_s, record["gap"])
        self.sample_event.set()
        return int(record["samples"])


class Soak:
    """Rounds on one host: a switch, perhaps a fault, and the rule when all is quiet."""

    def __init__(self, stack: Stack, host: Host, seed: int, slow: bool) -> None:
        self._stack, self._host, self._seed, self._slow = stack, host, seed, slow
        self._hot: str | None = None
        self._earlier_hot: str | None = None

    def round(self, number: int) -> Round:
        """Make one round; the same number is the same round."""
        seed = random.Random(f"{self._seed} {self._host.name} {number}")
        model = seed.choice([*UNITS, *UNITS, "none"])
        fault = faults.random_fault(seed, self._slow)
        rival = seed.choice([name for name in UNITS if name != model])
        delay = round(seed.uniform(0.0, 4.0), 2)
        self._round = Round(self._host.name, number, fault.name if fault else None)
        self._host.root(faults.set_knobs(fault, model))
        wanted_models = {model}
        operator = self._host.begin(f"{SWITCH} {model} --wait")
        codes = []
        if fault:
            codes += self._throw(fault, delay, rival, operator)
            wanted_models |= {rival} if fault.rival or "{unit}" in fault.command else set()
        description = (
            f"round {number}: {model} with {fault.name if fault else 'no fault'} at {delay} s"
        )
        out = self._end_of(operator, description)
        codes.append(operator.returncode)
        self._judge(description, wanted_models, fault, out)
        self._round.codes = [str(code) for code in codes]
        return self._round

    def _throw(
        self, fault: faults.Fault, delay: float, rival: str, operator: subprocess.Popen[str]
    ) -> list[int]:
        """Make the fault; returns exit codes of further clients."""
        if fault.power or fault.client or fault.rival or fault.memory:
            # A moment of the switch, not a condition: the fault is to come at random.
            time.sleep(delay)
        if fault.power:
            self._stack.lab("cycle", self._host.name)
        elif fault.client:
            operator.kill()
        elif fault.rival:
            rival_client = self._host.begin(f"{SWITCH} {rival} --wait")
            self._end_of(rival_client, f"{rival}, asked for by a second client at {delay} s")
            return [rival_client.returncode]
        elif fault.memory:
            self._let_memory_fall()
        elif fault.command:
            command = fault.command.replace("{unit}", UNITS[rival])
            self._host.run(f"sudo -n sh -c {_shell_word(f'sleep {delay}; {command}')}", _SETTLE_S)
        return []

    def _let_memory_fall(self) -> None:
        # The memory watch falls back to what the host itself remembers.
        record = json.loads(self._host.root(f"cat {HOT_BEFORE} || echo '{{}}'"))
        self._earlier_hot = record.get("before")
        try:
            self._memory(FALLEN_GIB, rate=20.0)
            # How long it lasts is a part of the fault.
            time.sleep(4)
        finally:
            self._memory(USUAL_GIB)

    def _memory(self, gib: float, rate: float | None = None) -> None:
        lab = open_lab(self._stack.name)
        control.ask(lab, "memory", host=self._host.name, available=gib, rate=rate)

    def _end_of(self, operator: subprocess.Popen[str], description: str) -> str:
        """The output of a client; a client that does not end is a violation."""
        try:
            return operator.communicate(timeout=_SETTLE_S)[0]
        except subprocess.TimeoutExpired:
            look = f"{SWITCH} status; systemctl list-jobs; ps -eo pid,etimes,args | tail -60"
            output = self._host.root(look)
            self._record_violation(description, f"no end within {_SETTLE_S:.0f} s:\n{output}")
            operator.kill()
            return operator.communicate()[0]

    def _judge(
        self, description: str, wanted_models: set[str], fault: faults.Fault | None, output: str
    ) -> None:
        """Judge the quiet host: status against systemd and processes, and the hot model."""
        code, status, active, alive = self._look()
        for _ in range(2):
            if not status["switching"] and not disagreement(status["hot"], active, alive):
                break
            # A crash of its own accord may come between the answers, and so may a switch whose
            # client was killed before it began; a lie stays one.
            code, status, active, alive = self._look()
        if code == 124:
            self._record_violation(description, f"not settled in {_SETTLE_S:.0f} s: {status}")
        hot = status["hot"]
        if message := disagreement(hot, active, alive):
            self._record_violation(description, message)
        if status["problems"] or status["switching"]:
            self._record_violation(description, f"{status['problems']}, {status['switching']}")
        allowed_models = {None if name == "none" else name for name in wanted_models}
        allowed_models |= {FALLBACK[name] for name in wanted_models if name in FALLBACK} | {
            self._hot
        }
        allowed_models |= {self._earlier_hot} if fault and fault.memory else set()
        if hot not in allowed_models and not (hot is None and self._reason(status, fault, output)):
            self._record_violation(description, f"{self._hot} was hot, {hot} is: {output[-800:]}")
        self._hot = hot

    def _reason(self, status: dict[str, Any], fault: faults.Fault | None, output: str) -> bool:
        """Tell whether the host gives a reason why no model is hot."""
        states = {model["state"] for model in status["models"].values()}
        is_explained = "NO MODEL IS HOT" in output or status["last_switch"] or "failed" in states
        return bool(is_explained) or (fault is not None and fault.kills)

    def _look(self) -> tuple[int, dict[str, Any], set[str], list[str]]:
        """The end of the waiting, status, active units and engine processes, in one login."""
        units = " ".join(UNITS.values())
        command = (
            f"{faults.clear()}; timeout {_SETTLE_S:.0f} {SWITCH} wait >/dev/null; echo $?; "
            f"echo ---; {SWITCH} status --json; echo ---; systemctl list-units --plain "
            f"--no-legend --state=active,activating,deactivating {units}; echo ---; "
            f"python3 -c {_shell_word(WATCHER)} once"
        )
        answer = self._host.root(command, _SETTLE_S + 60)
        code, status, active, alive = answer.split("---\n")
        active_units = {line.split()[0] for line in active.splitlines()}
        return int(code), json.loads(status), active_units, json.loads(alive)

    def _record_violation(self, description: str, message: str) -> None:
        self._round.violations.append(f"{self._host.name}: {description}: {message}")


def disagreement(hot: str | None, active: set[str], alive: list[str]) -> str:
    """The disagreement of status, systemd and the process table; empty if they agree."""
    if active != ({UNITS[hot]} if hot else set()):
        return f"status says {hot} is hot, systemd {sorted(active)}"
    if len(alive) != (1 if hot else 0):
        return f"{hot} is hot, engine processes: {alive}"
    return ""


def soak(
    stack: Stack,
    seed: int,
    switches: int,
    slow: bool,
    limit_s: float | None = None,
    progress: Callable[[Counts], object] | None = None,
    record: Path | None = None,
) -> Counts:
    """Make so many switches, shared among the lab's hosts; the deploy is done already.

    Rounds that are in `record` count and are not made again; new ones are added to it.
    """
    counts = Counts()
    earlier_rounds = run_record.read(record, Round)
    for earlier_round in earlier_rounds:
        counts.add(earlier_round)
    end = time.monotonic() + limit_s if limit_s else None
    writing = threading.Lock()

    def on(host: Host) -> None:
        host_rounds = [
            finished_round for finished_round in earlier_rounds if finished_round.host == host.name
        ]
        switch_count, number = (
            sum(len(finished_round.codes) for finished_round in host_rounds),
            len(host_rounds),
        )
        host.switch("none")
        soaking = Soak(stack, host, seed, slow)
        with Watcher(host, counts) as watcher:
            until(watcher.sample_event.is_set, f"{host.name}: the watcher samples")
            while switch_count < -(-switches // len(stack.hosts)) and (
                not end or time.monotonic() < end
            ):
                finished_round = soaking.round(number)
                switch_count, number = switch_count + len(finished_round.codes), number + 1
                with writing:
                    counts.add(finished_round)
                    run_record.add(record, finished_round)
        host.root(f"rm -f {faults.KNOBS}/standin-*.json")
        host.switch("none")

    with ThreadPoolExecutor(len(stack.hosts)) as pool:
        jobs = [pool.submit(on, host) for host in stack.hosts]
        while wait(jobs, timeout=60).not_done:
            if progress:
                progress(counts)
    for job in jobs:
        job.result()
    return counts


def inventory(stack: Stack) -> Path:
    """The lab's inventory with start time-outs that a test can wait for."""
    short = {"start_timeout_s": START_TIMEOUT_S}
    return stack.inventory("faults", models={"qwen": short, "mistral": short})


def _shell_word(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _tell(counts: Counts) -> None:
    faults_so_far = sum(counts.faults.values())
    print(
        f"{counts.switches} switches, {faults_so_far} faults of {len(counts.faults)} kinds, "
        f"{len(counts.violations)} violations",
        *counts.violations[-1:],
        flush=True,
    )


def main() -> int:
    """Command line; the exit code is 1 when the rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--switches", type=int, default=320)
    parser.add_argument("--record", type=Path, help="file with a line per round, to go on with")
    parser.add_argument("--lab", help="a lab that is up and deployed with start_timeout_s 12")
    options = parser.parse_args()
    with lend_lab(options.lab, "soak") as stack:
        if not options.lab:
            stack.good_deploy(inventory=inventory(stack))
        began = time.monotonic()
        counts = soak(
            stack,
            options.seed,
            options.switches,
            slow=True,
            progress=_tell,
            record=options.record,
        )
        print(f"seed          {options.seed}, {time.monotonic() - began:.0f} s")
        print(counts.report())
    return 1 if counts.violations else 0


if __name__ == "__main__":
    sys.exit(main())
