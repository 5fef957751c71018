"""Faults thrown at a group of two hosts: no half of it may stay up beyond its bound.

The command (`make cluster-faults`) runs every fault on each rank in each phase and prints counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from faults import KNOBS
from stack import REPOSITORY, Host, Stack, lent, until

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


@dataclass(frozen=True)
class Case:
    """One fault: on which rank's host, in which phase of which target."""

    target: str
    fault: str
    rank: int
    phase: str

    def __str__(self) -> str:
        return f"{self.target}: rank {self.rank} {self.fault}, {self.phase}"


@dataclass
class Counts:
    """Outcomes by kind, and what broke the rule."""

    ends: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    def report(self) -> str:
        """As text."""
        ends = [f"  {count:3} {end}" for end, count in sorted(self.ends.items())]
        head = f"{sum(self.ends.values())} faults, {len(self.violations)} violations"
        return "\n".join([head, *ends, f"  longest {self.longest_s:.0f} s", *self.violations])


def cases(target: str) -> list[Case]:
    """The whole matrix of one target."""
    # The stand-in's ranks do not wait for each other, so nothing shows that one of them is frozen.
    faults = FAULTS if target == REAL else tuple(fault for fault in FAULTS if fault != "frozen")
    return [Case(target, *words) for words in itertools.product(faults, (0, 1), PHASES)]


def run(stack: Stack, case: Case, counts: Counts) -> None:
    """Bring the group to the phase, throw the fault, and see what is left within the bound."""
    host = stack.hosts[case.rank]
    knobs = {"load_seconds": 6 if case.phase == "starting" else 0.5, "decode_rate": 50}
    for each in stack.hosts:
        each.root(f"echo '{json.dumps(knobs)}' > {KNOBS}/standin-sglang.json")
    if case.phase == "starting":
        begin(stack.one, f"/data/scripts/llm/switch.sh {case.target}")
        unit = UNITS[case.target]
        until(lambda: state(stack.two, unit) == "active", f"{case}: rank 1 is up")
    else:
        answer = stack.one.switch(case.target)
        assert answer.code == 0, answer.text
    if case.phase == "request":
        request(stack.one, case.target)
    before = runs(stack)
    began = time.monotonic()
    throw(stack, host, case.fault)
    try:
        end = settled(stack, case, before)
    except AssertionError as error:
        counts.violations.append(f"{case}: {error}")
        end = "HALF OF IT STAYED"
    took = time.monotonic() - began
    counts.longest_s = max(counts.longest_s, took)
    counts.ends[end] += 1
    print(f"{case}: {end}, {took:.0f} s", flush=True)
    answer = stack.one.switch("none", "--wait")
    held = [held_memory(each) for each in stack.hosts]
    if answer.code or any(held):
        counts.violations.append(f"{case}: afterwards {answer.text} {held}")


def throw(stack: Stack, host: Host, fault: str) -> None:
    """The fault itself; a host that was cut off or without power is back when this returns."""
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


def settled(stack: Stack, case: Case, before: set[str]) -> str:
    """How the group ended up: as a whole again, or off on every host with a reason."""
    unit = UNITS[case.target]

    def end() -> str:
        states = {state(each, unit) for each in stack.hosts}
        if states == {"active"} and (hot := runs(stack)) != before and len(hot) == 1:
            return "whole again" if generates(stack.one, case.target) else ""
        if states <= {"inactive", "failed"} and all(idle(each) for each in stack.hosts):
            return "off with a reason"
        return ""

    return until(end, "the group is whole again or off", BOUND_S + START_S, pause_s=4)


def idle(host: Host) -> bool:
    """Whether nothing is under way here, and nothing is going to be."""
    found = host.status()
    group = found["clusters"]["pair"]["run"]
    waits = group is not None and group["state"] in ("hot", "recovering")
    return found["switching"] is None and not waits


def runs(stack: Stack) -> set[str]:
    """Ids of the runs that the members believe to be hot."""
    groups = [each.status()["clusters"]["pair"]["run"] for each in stack.hosts]
    return {group["run"] for group in groups if group and group["state"] == "hot"}


def state(host: Host, unit: str) -> str:
    """The unit's state."""
    return host.show(unit, "ActiveState")


def generates(host: Host, target: str) -> bool:
    """Whether rank 0 answers with a token."""
    ready: bool | None = host.status()["targets"][target]["ready"]
    return bool(ready)


def begin(host: Host, command: str) -> None:
    """Have something run on a host that nobody waits for."""
    host.run(f"nohup {command} </dev/null >/dev/null 2>&1 &")


def request(host: Host, target: str) -> None:
    """One that is answered, and one that takes a while and is being answered."""
    port = PORTS[target]
    model = host.get(f"http://127.0.0.1:{port}/v1/models")["data"][0]["id"]
    assert host.complete(port, model)["usage"]["completion_tokens"] == 8
    chat = [{"role": "user", "content": "Count."}]
    body = json.dumps({"model": model, "messages": chat, "max_tokens": 900})
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    begin(host, f"curl -fsS -H 'Content-Type: application/json' -d '{body}' {url}")


def held_memory(host: Host) -> list[str]:
    """Processes of an engine that are still there."""
    return host.root(_PROCESSES).split()


def main() -> int:
    """Command line; the exit code is 1 when half of a group stayed up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=(STANDIN, REAL), action="append")
    parser.add_argument("--fault", choices=FAULTS, action="append")
    parser.add_argument("--phase", choices=PHASES, action="append")
    parser.add_argument("--lab", help="a lab that is up and deployed with lab_cluster.py")
    options = parser.parse_args()
    counts = Counts()
    with lent(options.lab, "cluster-faults") as stack:
        if not options.lab:
            stack.good_deploy(inventory=INVENTORY)
        for target in options.target or (STANDIN, REAL):
            for case in cases(target):
                wanted = case.phase in (options.phase or PHASES)
                if wanted and case.fault in (options.fault or FAULTS):
                    run(stack, case, counts)
        print(counts.report())
    return 1 if counts.violations else 0


if __name__ == "__main__":
    sys.exit(main())
