"""Wipes both hosts of a lab and builds them again from one lock; compares them and their downloads.

    python tests/proofs/rebuilding.py [--lab NAME]

Prints the bytes that each host took from each of the lab's servers. The second host takes only what
a deploy installs before the hosts copy from each other: apt packages, uv, our tools. The exit code
is 1 if it took more, or if `lockstep diff` finds a difference.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import runner
from copies import OWN, address, fetched_bytes


def prove(trial: runner.Trial[runner.Run]) -> None:
    """Wipe both hosts, build them again, and compare."""
    stack = trial.stack
    stack.good_deploy()
    earlier_lock = stack.lock.read_bytes()
    for host in stack.hosts:
        stack.lab("wipe", host.name)
    since, began = time.time(), time.monotonic()
    stack.good_deploy()
    trial.notes.append(f"two wiped hosts built again in {time.monotonic() - began:.0f} s")
    assert stack.lock.read_bytes() == earlier_lock
    bytes_by_client = fetched_bytes(stack, since)
    rows = [bytes_by_client.get(address(host), Counter()) for host in stack.hosts]
    for name in ("hub", "registry", "git", "wheels", *OWN):
        trial.notes.append(f"  {name:10}" + "".join(f"{row[name] / 1e6:12.3f} MB" for row in rows))
    if more := [name for name, count in rows[1].items() if count and name not in OWN]:
        trial.violations.append(f"the second host took more: {more}")
    result = stack.diff()
    if result.returncode:
        trial.violations.append(f"diff: {result.stdout.strip()}")
    if operations := stack.good_deploy().changed_operations:
        trial.violations.append(f"a deploy after that changes {sorted(operations)}")


PROOF = runner.Proof(__doc__, "rebuilding", runner.Run, prove)

if __name__ == "__main__":
    sys.exit(PROOF.main())
