"""The cost of `lockstep diff`: two lab hosts, beside bare ssh, and fifty hosts without a network.

`make bench`, with the lab deployed (`make deploy`). Everything is measured in one run of this
program, medians of RUNS runs. The fifty are copies of one host's snapshot under other names; a
function of this process answers for them after a snapshot's time. The comparison is what remains.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.host import connection
from lockstep.drift import hosts, report
from lockstep.drift.subjects import questions
from lockstep.fleet.login import Login
from lockstep.host.desired_state import DesiredState

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories/lab.py"
BIN = Path(sys.executable).parent
RUNS = 5
# Round trip added to every host's cable, milliseconds.
DELAYS = (0, 20)
# Bound as a multiple of `ssh HOST true` at the longest round trip: 4.6 when idle, 5.8 at load 6
# (lab, 2026-11-22).
MOST = 8.0
MANY = 50


def seconds(work: Callable[[], object]) -> float:
    """Median wall-clock seconds of RUNS runs."""
    durations = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def diff() -> None:
    """Run the command as users do; the hosts must be without drift."""
    argv = [str(BIN / "lockstep"), "diff", "-i", str(INVENTORY)]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"the hosts have drift: `make deploy` first\n{result.stdout}{result.stderr}")


def bare(where: Login) -> None:
    """Run `ssh HOST true`, which reaches the host as the diff does."""
    subprocess.run(where.command(["true"]), check=True, capture_output=True)


def many(example_state: DesiredState, host_snapshot: hosts.HostSnapshot, key: bytes) -> float:
    """Seconds to question and compare MANY hosts that all answer the same.

    Args:
        example_state: The desired state of one host.
        host_snapshot: The host's snapshot.
        key: Key of the hashes in the snapshot.
    """
    names = [f"spark{number + 1}" for number in range(MANY)]
    every = [
        DesiredState(
            replace(example_state.plan, name=name, settings=example_state.plan.settings),
            example_state.pins,
        )
        for name in names
    ]
    text = json.dumps(host_snapshot.snapshot)

    def answer(host_question: hosts.HostQuestion) -> hosts.HostSnapshot:
        snapshot: dict[str, Any] = json.loads(text)
        return replace(host_snapshot, host=host_question.login.name, snapshot=snapshot)

    def whole() -> None:
        host_questions = [
            hosts.HostQuestion(
                Login(desired_state.plan.name, ()), questions(desired_state, key=key, deep=False)
            )
            for desired_state in every
        ]
        comparison = report.judge("many", every, hosts.take_all(host_questions, answer), key=key)
        if comparison.differences or len(comparison.hosts) != MANY:
            sys.exit(f"{len(comparison.differences)} differences between equal hosts")

    return seconds(whole)


def main() -> int:
    """Print the medians; 1 when two hosts at 20 ms take `MOST` times a bare login or more."""
    os.environ["COLUMNS"] = "80"
    lab = connection.load()
    delay = [str(BIN / "lockstep"), "lab", "delay", "all"]
    # Reading the inventory takes this process into the lab's network.
    key = bytes(32)
    desired_states, every = report.read(INVENTORY, key=key)
    where = every[0].login
    worst = 0.0
    try:
        for milliseconds in DELAYS:
            subprocess.run([*delay, str(milliseconds)], check=True)
            alone, diff_seconds = seconds(lambda: bare(where)), seconds(diff)
            worst = diff_seconds / alone
            print(f"{milliseconds} ms of added round trip (median of {RUNS})")
            print(f"ssh HOST true               {alone:6.2f} s")
            print(
                f"lockstep diff, {len(lab.hosts)} hosts      {diff_seconds:6.2f} s,"
                f" {diff_seconds / alone:.1f} times that",
                flush=True,
            )
    finally:
        subprocess.run([*delay, "0"], check=True)
    total_seconds = many(desired_states[0], hosts.over_ssh(every[0]), key)
    print(
        f"{MANY} equal hosts, no network {total_seconds:6.2f} s, "
        f"{1000 * total_seconds / MANY:.0f} ms a host"
    )
    return 0 if worst < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
