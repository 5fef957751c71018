"""What `lockstep diff` costs: two lab hosts, beside bare ssh, and fifty hosts without a network.

`make bench`, with the lab deployed (`make deploy`). Everything is measured in one run of this
program, medians of RUNS runs. The fifty are copies of one host's snapshot under other names,
answered by a function of this process after a snapshot's time: what is left is the comparison.
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
from lockstep.host.intended import Intended

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories/lab.py"
BIN = Path(sys.executable).parent
RUNS = 5
# Round trip added to every host's cable, milliseconds.
DELAYS = (0, 20)
# Times `ssh HOST true`, at the longest round trip: 4.6 when idle, 5.8 at load 6 (lab, 2026-11-22).
MOST = 8.0
MANY = 50


def seconds(work: Callable[[], object]) -> float:
    """Median wall-clock seconds of RUNS runs."""
    spent = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def diff() -> None:
    """The command as users run it; the hosts must be without drift."""
    argv = [str(BIN / "lockstep"), "diff", "-i", str(INVENTORY)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the hosts have drift: `make deploy` first\n{done.stdout}{done.stderr}")


def bare(where: Login) -> None:
    """`ssh HOST true`, as the diff reaches the host."""
    subprocess.run(where.command(["true"]), check=True, capture_output=True)


def many(this: Intended, taken: hosts.Taken, key: bytes) -> float:
    """Seconds to question and compare MANY hosts that all answer the same.

    Args:
        this: One host as it is to be.
        taken: Its snapshot.
        key: Key of the hashes in it.
    """
    names = [f"spark{number + 1}" for number in range(MANY)]
    every = [
        Intended(replace(this.plan, name=name, settings=this.plan.settings), this.pins)
        for name in names
    ]
    text = json.dumps(taken.snapshot)

    def answer(asked: hosts.Asked) -> hosts.Taken:
        snapshot: dict[str, Any] = json.loads(text)
        return replace(taken, host=asked.login.name, snapshot=snapshot)

    def whole() -> None:
        asked = [
            hosts.Asked(Login(each.plan.name, ()), questions(each, key=key, deep=False))
            for each in every
        ]
        found = report.judge("many", every, hosts.take_all(asked, answer), key=key)
        if found.differences or len(found.hosts) != MANY:
            sys.exit(f"{len(found.differences)} differences between equal hosts")

    return seconds(whole)


def main() -> int:
    """Print the medians; 1 when two hosts at 20 ms take `MOST` times a bare login or more."""
    os.environ["COLUMNS"] = "80"
    lab = connection.load()
    delay = [str(BIN / "lockstep"), "lab", "delay", "all"]
    # Reading the inventory takes this process into the lab's network.
    key = bytes(32)
    intended, every = report.read(INVENTORY, key=key)
    where = every[0].login
    worst = 0.0
    try:
        for milliseconds in DELAYS:
            subprocess.run([*delay, str(milliseconds)], check=True)
            alone, ours = seconds(lambda: bare(where)), seconds(diff)
            worst = ours / alone
            print(f"{milliseconds} ms of added round trip (median of {RUNS})")
            print(f"ssh HOST true               {alone:6.2f} s")
            print(
                f"lockstep diff, {len(lab.hosts)} hosts      {ours:6.2f} s,"
                f" {ours / alone:.1f} times that",
                flush=True,
            )
    finally:
        subprocess.run([*delay, "0"], check=True)
    spent = many(intended[0], hosts.over_ssh(every[0]), key)
    print(f"{MANY} equal hosts, no network {spent:6.2f} s, {1000 * spent / MANY:.0f} ms a host")
    return 0 if worst < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
