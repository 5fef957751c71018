"""Random switches with faults thrown in, seeded; what was counted, and what broke the rule.

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
from stack import Host, Stack, lent, until

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
#: A target that is never ready fails after so many seconds.
START_TIMEOUT_S = 12
HOT_BEFORE = "/run/lockstep/hot-before.json"
USUAL_GIB = 118.0
#: Memory without engines that leaves a hot qwen, the smallest, 3 GiB: less than its floor of 4.
FALLEN_GIB = 70.0
_SETTLE_S = 240.0


@dataclass
class Round:
    """One round on one host: its fault, the exit codes of its switches, what broke the rule."""

    host: str
    number: int
    fault: str | None = None
    codes: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


@dataclass
class Counts:
    """What a soak has seen; `violations` are sentences."""

    switches: int = 0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    longest_gap_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, one: Round) -> None:
        """Count a round that has ended."""
        self.rounds += 1
        self.switches += len(one.codes)
        self.faults.update([one.fault] if one.fault else [])
        self.codes.update(one.codes)
        self.violations += one.violations

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
        self.seen = threading.Event()

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
            self._process = self._host.begin(f"sudo -n python3 -u -c {_quoted(WATCHER)}")
            assert self._process.stdout is not None
            before = 0
            for line in self._process.stdout:
                if line.startswith("{"):
                    before = self._read(json.loads(line), before)
            self._process.wait()
            self._end.wait(0.5)

    def _read(self, said: dict[str, Any], before: int) -> int:
        if "violation" in said:
            engines = " AND ".join(line[:160] for line in said["violation"])
            self._counts.violations.append(f"{self._host.name}: two engines alive: {engines}")
            return before
        self._counts.samples += said["samples"] - before
        self._counts.longest_gap_s = max(self._counts.longest_gap_s, said["gap"])
        self.seen.set()
        return int(said["samples"])


class Soak:
    """Rounds on one host: a switch, perhaps a fault, and what must hold when all is quiet."""

    def __init__(self, stack: Stack, host: Host, seed: int, slow: bool) -> None:
        self._stack, self._host, self._seed, self._slow = stack, host, seed, slow
        self._hot: str | None = None
        self._before: str | None = None

    def round(self, number: int) -> Round:
        """One round; the same number is the same round."""
        seed = random.Random(f"{self._seed} {self._host.name} {number}")
        target = seed.choice([*UNITS, *UNITS, "none"])
        fault = faults.chosen(seed, self._slow)
        rival = seed.choice([name for name in UNITS if name != target])
        delay = round(seed.uniform(0.0, 4.0), 2)
        self._round = Round(self._host.name, number, fault.name if fault else None)
        self._host.root(faults.set_knobs(fault, target))
        wanted = {target}
        operator = self._host.begin(f"{SWITCH} {target} --wait")
        codes = []
        if fault:
            codes += self._throw(fault, delay, rival, operator)
            wanted |= {rival} if fault.rival or "{unit}" in fault.command else set()
        said = f"round {number}: {target} with {fault.name if fault else 'no fault'} at {delay} s"
        out = self._end_of(operator, said)
        codes.append(operator.returncode)
        self._judge(said, wanted, fault, out)
        self._round.codes = [str(code) for code in codes]
        return self._round

    def _throw(
        self, fault: faults.Fault, delay: float, rival: str, operator: subprocess.Popen[str]
    ) -> list[int]:
        """Make the fault; exit codes of further clients."""
        if fault.power or fault.client or fault.rival or fault.memory:
            # A moment of the switch, not a condition: the fault is to come at random.
            time.sleep(delay)
        if fault.power:
            self._stack.lab("cycle", self._host.name)
        elif fault.client:
            operator.kill()
        elif fault.rival:
            other = self._host.begin(f"{SWITCH} {rival} --wait")
            self._end_of(other, f"{rival}, asked for by a second client at {delay} s")
            return [other.returncode]
        elif fault.memory:
            self._let_memory_fall()
        elif fault.command:
            command = fault.command.replace("{unit}", UNITS[rival])
            self._host.run(f"sudo -n sh -c {_quoted(f'sleep {delay}; {command}')}", _SETTLE_S)
        return []

    def _let_memory_fall(self) -> None:
        # The memory floor falls back to what the host itself remembers.
        told = json.loads(self._host.root(f"cat {HOT_BEFORE} || echo '{{}}'"))
        self._before = told.get("before")
        try:
            self._memory(FALLEN_GIB, rate=20.0)
            # How long it lasts is a part of the fault.
            time.sleep(4)
        finally:
            self._memory(USUAL_GIB)

    def _memory(self, gib: float, rate: float | None = None) -> None:
        lab = open_lab(self._stack.name)
        control.ask(lab, "memory", host=self._host.name, available=gib, rate=rate)

    def _end_of(self, operator: subprocess.Popen[str], said: str) -> str:
        """What a client printed; one that does not come to an end is a violation."""
        try:
            return operator.communicate(timeout=_SETTLE_S)[0]
        except subprocess.TimeoutExpired:
            look = f"{SWITCH} status; systemctl list-jobs; ps -eo pid,etimes,args | tail -60"
            found = self._host.root(look)
            self._violated(said, f"no end within {_SETTLE_S:.0f} s:\n{found}")
            operator.kill()
            return operator.communicate()[0]

    def _judge(self, said: str, wanted: set[str], fault: faults.Fault | None, output: str) -> None:
        """When all is quiet: status against systemd and processes, and what may be hot."""
        code, found, active, alive = self._look()
        for _ in range(2):
            if not found["switching"] and not disagreement(found["hot"], active, alive):
                break
            # A crash of its own accord may come between the answers, and so may a switch whose
            # client was killed before it began; a lie stays one.
            code, found, active, alive = self._look()
        if code == 124:
            self._violated(said, f"not settled in {_SETTLE_S:.0f} s: {found}")
        hot = found["hot"]
        if what := disagreement(hot, active, alive):
            self._violated(said, what)
        if found["problems"] or found["switching"]:
            self._violated(said, f"{found['problems']}, {found['switching']}")
        allowed = {None if name == "none" else name for name in wanted}
        allowed |= {FALLBACK[name] for name in wanted if name in FALLBACK} | {self._hot}
        allowed |= {self._before} if fault and fault.memory else set()
        if hot not in allowed and not (hot is None and self._reason(found, fault, output)):
            self._violated(said, f"{self._hot} was hot, {hot} is: {output[-800:]}")
        self._hot = hot

    def _reason(self, found: dict[str, Any], fault: faults.Fault | None, output: str) -> bool:
        """Whether it is said why no model is hot."""
        states = {target["state"] for target in found["targets"].values()}
        told = "NO MODEL IS HOT" in output or found["last_switch"] or "failed" in states
        return bool(told) or (fault is not None and fault.kills)

    def _look(self) -> tuple[int, dict[str, Any], set[str], list[str]]:
        """How the waiting ended, status, active units and engine processes, in one login."""
        units = " ".join(UNITS.values())
        command = (
            f"{faults.clear()}; timeout {_SETTLE_S:.0f} {SWITCH} wait >/dev/null; echo $?; "
            f"echo ---; {SWITCH} status --json; echo ---; systemctl list-units --plain "
            f"--no-legend --state=active,activating,deactivating {units}; echo ---; "
            f"python3 -c {_quoted(WATCHER)} once"
        )
        answer = self._host.root(command, _SETTLE_S + 60)
        code, status, active, alive = answer.split("---\n")
        started = {line.split()[0] for line in active.splitlines()}
        return int(code), json.loads(status), started, json.loads(alive)

    def _violated(self, said: str, what: str) -> None:
        self._round.violations.append(f"{self._host.name}: {said}: {what}")


def disagreement(hot: str | None, active: set[str], alive: list[str]) -> str:
    """What status, systemd and the process table do not agree about; empty when they do."""
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
    """So many switches, shared among the lab's hosts; the deploy is done already.

    Rounds that are in `record` count and are not made again; new ones are added to it.
    """
    counts = Counts()
    before = run_record.read(record, Round)
    for one in before:
        counts.add(one)
    end = time.monotonic() + limit_s if limit_s else None
    writing = threading.Lock()

    def on(host: Host) -> None:
        mine = [one for one in before if one.host == host.name]
        done, number = sum(len(one.codes) for one in mine), len(mine)
        host.switch("none")
        soaking = Soak(stack, host, seed, slow)
        with Watcher(host, counts) as watcher:
            until(watcher.seen.is_set, f"{host.name}: the watcher samples")
            while done < -(-switches // len(stack.hosts)) and (not end or time.monotonic() < end):
                one = soaking.round(number)
                done, number = done + len(one.codes), number + 1
                with writing:
                    counts.add(one)
                    run_record.add(record, one)
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
    return stack.inventory("faults", targets={"qwen": short, "mistral": short})


def _quoted(text: str) -> str:
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
    with lent(options.lab, "soak") as stack:
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
