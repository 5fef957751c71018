"""Random switches with faults thrown in, seeded: counts, and breaches of the rule.

    python tests/proofs/soaking.py --switches 3000 --seed 1 --record FILE

`make soak` runs a shorter one, `tests/lab/switching/test_switch_faults.py` a short one.
"""

import itertools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faults
import runner
from stack import SWITCH, Follower, Host, Stack

UNITS = {
    "qwen": "vllm-qwen36.service",
    "mistral": "sglang-mistral4.service",
    "mistral-fallback": "sglang-mistral4-fallback.service",
}
FALLBACK = {"mistral": "mistral-fallback"}
WATCHER = Path(__file__).with_name("watcher.py").read_text()
#: A model that is never ready fails after so many seconds.
START_TIMEOUT_S = 12
HOT_BEFORE = "/run/lockstep/hot-change.json"
#: Memory without engines that leaves a hot qwen, the smallest, 3 GiB: less than its minimum of 4.
FALLEN_GIB = 70.0
_SETTLE_S = 240.0


@dataclass
class Round(runner.Run):
    """One round on one host: its fault and its switches' exit codes."""

    fault: str | None = None
    codes: list[str] = field(default_factory=list)

    @property
    def key(self) -> object:
        """Each host counts its rounds for itself."""
        return self.host, self.number


class Watcher(Follower):
    """Follows watcher.py on one host over a connection of its own, again after a power cut."""

    def __init__(self, host: Host, violations: list[str]) -> None:
        command = f"sudo -n python3 -u -c {shlex.quote(WATCHER)}"
        super().__init__(lambda: host.begin(command), self._read)
        self._host, self._violations = host, violations
        self._earlier_samples = 0
        self.samples, self.longest_gap_s = 0, 0.0

    def _read(self, line: str) -> None:
        if not line.startswith("{"):
            return
        record = json.loads(line)
        if "violation" in record:
            engines = " AND ".join(text[:160] for text in record["violation"])
            self._violations.append(f"{self._host.name}: two engines alive: {engines}")
            return
        # A watcher that was begun again counts from nothing.
        more = record["samples"] - self._earlier_samples
        self.samples += more if more > 0 else record["samples"]
        self._earlier_samples = record["samples"]
        self.longest_gap_s = max(self.longest_gap_s, record["gap"])

    def report(self) -> str:
        """The count of samples as text."""
        return f"{self._host.name}: {self.samples} samples, longest gap {self.longest_gap_s:.2f} s"


class Soak:
    """Rounds on one host: a switch, perhaps a fault, and the rule when all is quiet."""

    def __init__(self, trial: runner.Trial[Round], host: Host) -> None:
        self._trial, self._stack, self._host = trial, trial.stack, host
        self._hot: str | None = None
        self._earlier_hot: str | None = None

    def rounds(self) -> Iterator[Round]:
        """Rounds until the host's share of switches is made."""
        share = -(-self._trial.options.switches // len(self._stack.hosts))
        for number in itertools.count():
            own = [run for run in self._trial.runs if run.host == self._host.name]
            if sum(len(run.codes) for run in own) >= share:
                return
            yield Round(number, self._host.name)

    def make(self, run: Round) -> None:
        """Make one round; the same number is the same round."""
        chance = self._trial.chance(self._host.name, run.number)
        model = chance.choice([*UNITS, *UNITS, "none"])
        fault = faults.random_fault(chance, not self._trial.options.quick)
        rival = chance.choice([name for name in UNITS if name != model])
        delay = round(chance.uniform(0.0, 4.0), 2)
        self._round, run.fault = run, fault.name if fault else None
        self._host.root(faults.set_knobs(fault, model))
        wanted_models = {model}
        operator = self._host.begin(f"{SWITCH} {model} --wait")
        codes = []
        if fault:
            codes += self._throw(fault, delay, rival, operator)
            if fault.deed == "rival" or "{unit}" in fault.command:
                wanted_models.add(rival)
        description = f"{model} with {run.fault or 'no fault'} at {delay} s"
        out = self._end_of(operator, description)
        run.codes = [str(code) for code in (*codes, operator.returncode)]
        self._judge(description, wanted_models, fault, out)

    def _throw(
        self, fault: faults.Fault, delay: float, rival: str, operator: subprocess.Popen[str]
    ) -> list[int]:
        """Make the fault; returns exit codes of further clients."""
        if fault.deed:
            # A moment of the switch, not a condition: the fault is to come at random.
            time.sleep(delay)
        if fault.deed == "power":
            self._stack.lab("cycle", self._host.name)
        elif fault.deed == "client":
            operator.kill()
        elif fault.deed == "rival":
            rival_client = self._host.begin(f"{SWITCH} {rival} --wait")
            self._end_of(rival_client, f"{rival}, asked for by a second client at {delay} s")
            return [rival_client.returncode]
        elif fault.deed == "memory":
            self._let_memory_fall()
        elif fault.command:
            command = fault.command.replace("{unit}", UNITS[rival])
            self._host.run(f"sudo -n sh -c {shlex.quote(f'sleep {delay}; {command}')}", _SETTLE_S)
        return []

    def _let_memory_fall(self) -> None:
        # The memory watch falls back to what the host itself remembers.
        record = json.loads(self._host.root(f"cat {HOT_BEFORE} || echo '{{}}'"))
        self._earlier_hot = record.get("previous")
        try:
            self._stack.memory(self._host, FALLEN_GIB, rate=20.0)
            # How long it lasts is a part of the fault.
            time.sleep(4)
        finally:
            self._stack.memory(self._host)

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
        for _ in range(3):
            # A crash of its own accord may come between the answers, and so may a switch whose
            # client was killed before it began; a lie stays one.
            code, status, active, alive = look(self._host)
            if not status["switching"] and not disagreement(status["hot"], active, alive):
                break
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
        allowed_models |= {self._earlier_hot} if fault and fault.deed == "memory" else set()
        if hot not in allowed_models and not (hot is None and self._reason(status, fault, output)):
            self._record_violation(description, f"{self._hot} was hot, {hot} is: {output[-800:]}")
        self._hot = hot

    def _reason(self, status: dict[str, Any], fault: faults.Fault | None, output: str) -> bool:
        """Tell whether the host gives a reason why no model is hot."""
        states = {model["state"] for model in status["models"].values()}
        is_explained = "NO MODEL IS HOT" in output or status["last_switch"] or "failed" in states
        return bool(is_explained) or (fault is not None and fault.kills)

    def _record_violation(self, description: str, message: str) -> None:
        self._round.violations.append(f"{description}: {message}")


def look(host: Host) -> tuple[int, dict[str, Any], set[str], list[str]]:
    """Clear the faults, wait for the end of what is under way, and look at the host, in one login.

    Returns the exit code of the waiting, status, active units and engine processes.
    """
    output = host.root(
        f"{faults.clear()}; timeout {_SETTLE_S:.0f} {SWITCH} wait >/dev/null; echo $?; "
        f"echo ---; {SWITCH} status --json; echo ---; systemctl list-units --plain "
        f"--no-legend --state=active,activating,deactivating {' '.join(UNITS.values())}; "
        f"echo ---; python3 -c {shlex.quote(WATCHER)} once",
        _SETTLE_S + 60,
    )
    code, status, active, alive = output.split("---\n")
    active_units = {line.split()[0] for line in active.splitlines()}
    return int(code), json.loads(status), active_units, json.loads(alive)


def disagreement(hot: str | None, active: set[str], alive: list[str]) -> str:
    """The disagreement of status, systemd and the process table; empty if they agree."""
    if active != ({UNITS[hot]} if hot else set()):
        return f"status says {hot} is hot, systemd {sorted(active)}"
    if len(alive) != (1 if hot else 0):
        return f"{hot} is hot, engine processes: {alive}"
    return ""


def prove(trial: runner.Trial[Round]) -> None:
    """Make so many switches, shared among the hosts."""

    def on(host: Host) -> None:
        host.switch("none")
        soak = Soak(trial, host)
        with Watcher(host, trial.violations) as watcher:
            for run in trial.remaining(soak.rounds()):
                trial.make(run, soak.make)
        trial.notes.append(watcher.report())
        faults.clear_knobs(host)

    trial.on_hosts(on)


def figures(trial: runner.Trial[Round]) -> list[str]:
    """The counts of a soak."""
    return [
        runner.counts("faults", (run.fault for run in trial.runs if run.fault)),
        runner.counts("switches by exit code", (code for run in trial.runs for code in run.codes)),
    ]


def inventory(stack: Stack) -> Path:
    """The lab's inventory with start time-outs that a test can wait for."""
    short = {"start_timeout_s": START_TIMEOUT_S}
    return stack.inventory("faults", models={"qwen": short, "mistral": short})


PROOF = runner.Proof(
    __doc__,
    "soak",
    Round,
    prove,
    figures,
    {
        "switches": 320,
        "quick": {"action": "store_true", "help": "leave out faults that take a minute"},
    },
    inventory,
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
