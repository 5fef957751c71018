"""Faults thrown at a group of two hosts: no half of it may stay up beyond its bound.

The command (`make cluster-faults`) runs every fault on each rank in each phase and prints counts.
"""

import itertools
import json
import sys
import time
from dataclasses import dataclass

import faults
import runner
from stack import REPOSITORY, SWITCH, Host, Stack, until

INVENTORY = REPOSITORY / "inventories/lab_cluster.py"
#: The stand-in for SGLang in containers, and the real vLLM.
STANDIN, REAL = "all", "pair"
UNITS = {STANDIN: "sglang-all.service", REAL: "vllm-pair.service"}
PORTS = {STANDIN: 30005, REAL: 8020}
FAULTS = ("killed", "frozen", "cut", "power")
PHASES = ("starting", "idle", "request")
# What docs/cluster.md states (90 s for a frozen rank) and a stop, on a machine under load.
BOUND_S = 240.0
# Of a group that is started again; the real engine needs a minute on two idle cores.
START_S = 900.0

# Of a container neither the client nor its init: the first is no engine, and a second that is
# frozen alone stops nothing.
_PROCESSES = (
    "pgrep -f '^VLLM::|(vllm|sglang) serve|^sglang::' | while read pid; do "
    "case $(cat /proc/$pid/comm) in docker*) ;; *) echo $pid;; esac; done"
)


@dataclass
class Case(runner.Run):
    """One fault on the host of a rank, in a phase of a model, and the end of the group."""

    model: str = STANDIN
    fault: str = ""
    rank: int = 0
    phase: str = ""
    end: str = ""

    def __str__(self) -> str:
        return f"{self.model}: rank {self.rank} {self.fault}, {self.phase}"


def cases(models: list[str]) -> list[Case]:
    """The whole matrix of some models."""
    every = itertools.product((STANDIN, REAL), FAULTS, (0, 1), PHASES)
    planned_cases = [
        Case(number, model=model, fault=fault, rank=rank, phase=phase)
        for number, (model, fault, rank, phase) in enumerate(every)
        # The stand-in's ranks do not wait for each other, so nothing shows that one is frozen.
        if (model, fault) != (STANDIN, "frozen")
    ]
    return [case for case in planned_cases if case.model in models]


def run(stack: Stack, case: Case) -> None:
    """Bring the group to the phase, throw the fault, and judge the state after the bound."""
    host = stack.hosts[case.rank]
    knobs = {"load_seconds": 6 if case.phase == "starting" else 0.5, "decode_rate": 50}
    for member in stack.hosts:
        member.root(faults.put_knobs(knobs, ("sglang",)))
    if case.phase == "starting":
        begin(stack.spark1, f"{SWITCH} {case.model}")
        unit = UNITS[case.model]
        until(lambda: stack.two.show(unit, "ActiveState") == "active", f"{case}: rank 1 is up")
    else:
        answer = stack.spark1.switch(case.model)
        assert answer.code == 0, answer.text
    if case.phase == "request":
        request(stack.spark1, case.model)
    earlier_runs = runs(stack)
    throw(stack, host, case.fault)
    try:
        case.end = group_end(stack, case, earlier_runs)
    except AssertionError as error:
        case.violations.append(f"{case}: {error}")
        case.end = "HALF OF IT STAYED"
    answer = stack.spark1.switch("none", "--wait")
    memory_use = [held_memory(member) for member in stack.hosts]
    if answer.code or any(memory_use):
        case.violations.append(f"{case}: afterwards {answer.text} {memory_use}")


def throw(stack: Stack, host: Host, fault: str) -> None:
    """Make the fault; a host that was cut off or without power is back when this returns."""
    if fault in ("killed", "frozen"):
        signal = "KILL" if fault == "killed" else "STOP"
        # A unit is up before its container has an engine; nothing would be hit.
        until(lambda: held_memory(host), f"a process of an engine on {host.name}")
        # Who is killed may take others of them along.
        host.root(f"for pid in $({_PROCESSES}); do kill -{signal} $pid || true; done")
    elif fault == "power":
        stack.lab("cycle", host.name)
    else:
        stack.lab("cut", host.name)
        # Longer than the lease of 20 s: both sides have to end it for themselves.
        time.sleep(30)
        stack.lab("mend", host.name)


def group_end(stack: Stack, case: Case, earlier_runs: set[str]) -> str:
    """The end of the group: whole again, or off on every host with a reason."""
    unit = UNITS[case.model]

    def end() -> str:
        states = {member.show(unit, "ActiveState") for member in stack.hosts}
        if states == {"active"} and (hot := runs(stack)) != earlier_runs and len(hot) == 1:
            is_ready = stack.spark1.status()["models"][case.model]["ready"]
            return "whole again" if is_ready else ""
        if states <= {"inactive", "failed"} and all(idle(member) for member in stack.hosts):
            return "off with a reason"
        return ""

    return until(end, "the group is whole again or off", BOUND_S + START_S, pause_s=4)


def idle(host: Host) -> bool:
    """Tell whether nothing is under way on this host, and nothing is due."""
    status = host.status()
    group = status["clusters"]["pair"]["run"]
    waits = group is not None and group["state"] in ("hot", "recovering")
    return status["switching"] is None and not waits


def runs(stack: Stack) -> set[str]:
    """Ids of the runs that the members believe to be hot."""
    groups = [member.status()["clusters"]["pair"]["run"] for member in stack.hosts]
    return {group["run"] for group in groups if group and group["state"] == "hot"}


def begin(host: Host, command: str) -> None:
    """Begin a command on a host; nobody waits for its end."""
    host.run(f"nohup {command} </dev/null >/dev/null 2>&1 &")


def request(host: Host, model: str) -> None:
    """A request that is answered, and one that takes a while and is being answered."""
    port = PORTS[model]
    served_name = host.get(f"http://127.0.0.1:{port}/v1/models")["data"][0]["id"]
    assert host.complete(port, served_name)["usage"]["completion_tokens"] == 8
    chat = [{"role": "user", "content": "Count."}]
    body = json.dumps({"model": served_name, "messages": chat, "max_tokens": 900})
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    begin(host, f"curl -fsS -H 'Content-Type: application/json' -d '{body}' {url}")


def held_memory(host: Host) -> list[str]:
    """Processes of an engine that still run."""
    return host.root(_PROCESSES).split()


def prove(trial: runner.Trial[Case]) -> None:
    """Make every case, or the chosen ones."""
    options = trial.options
    for case in trial.remaining(cases(options.model or [STANDIN, REAL])):
        if case.phase in (options.phase or PHASES) and case.fault in (options.fault or FAULTS):
            trial.make(case, lambda case: run(trial.stack, case))


PROOF = runner.Proof(
    __doc__,
    "cluster-faults",
    Case,
    prove,
    lambda trial: [
        runner.counts("faults", (case.end for case in trial.runs)),
        f"longest {max((case.took_s for case in trial.runs), default=0):.0f} s",
    ],
    {
        "model": {"choices": (STANDIN, REAL), "action": "append"},
        "fault": {"choices": FAULTS, "action": "append"},
        "phase": {"choices": PHASES, "action": "append"},
    },
    lambda stack: INVENTORY,
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
