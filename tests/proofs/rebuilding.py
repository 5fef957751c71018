"""Wipes both hosts of a lab and builds them again from one lock; compares them and their downloads.

    python tests/proofs/rebuilding.py [--lab NAME]

Prints the bytes that each host took from each of the lab's servers. The second host takes only what
a deploy installs before the hosts copy from each other: apt packages, uv, our tools. The exit code
is 1 if it took more, or if `lockstep diff` finds a difference.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from copies import OWN, address, fetched_bytes
from stack import Stack, lend_lab


def rebuilt(stack: Stack) -> int:
    """Wipe both hosts, build them again, and print the figures; returns the exit code."""
    stack.good_deploy()
    earlier_lock = stack.lock.read_bytes()
    for host in stack.hosts:
        stack.lab("wipe", host.name)
    since, began = time.time(), time.monotonic()
    stack.good_deploy()
    print(f"two wiped hosts built again in {time.monotonic() - began:.0f} s")
    assert stack.lock.read_bytes() == earlier_lock
    bytes_by_client = fetched_bytes(stack, since)
    rows = [bytes_by_client.get(address(host), Counter()) for host in stack.hosts]
    for name in ("hub", "registry", "git", "wheels", *OWN):
        print(f"  {name:10}" + "".join(f"{row[name] / 1e6:12.3f} MB" for row in rows))
    result = stack.diff()
    print(result.stdout.strip())
    again = stack.good_deploy()
    print(f"a deploy after that changes {len(again.changed_operations)} operations")
    more = [name for name, count in rows[1].items() if count and name not in OWN]
    return 1 if more or result.returncode or again.changed_operations else 0


def main() -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n    python")[0])
    parser.add_argument("--lab", help="a lab that is up; it is left up")
    options = parser.parse_args()
    with lend_lab(options.lab, "rebuilding") as stack:
        return rebuilt(stack)


if __name__ == "__main__":
    sys.exit(main())
