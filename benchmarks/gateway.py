"""What the gateway costs, beside its engine asked directly and beside Caddy's plain reverse proxy.

`make bench`, with the lab deployed (`make deploy`): on one host, an engine that gives tokens at a
fixed pace, and three ways to it, in turn in one run, so that ratios hold on a machine whose speed
drifts. The engine is quicker than any model, so the milliseconds count. `gateway_on_host.py` is
the program there.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.host import connection
from lockstep.files.managed_file import TOOLS_VENV

ROUNDS = 5
FOLDER = "/var/tmp/lockstep-bench-gateway"
ADDED_MS, SHARE, STREAMS, MEMORY_MB = 2.0, 0.95, 1000, 150.0


def main() -> int:
    """Print the medians; 1 where a bound is not kept."""
    lab = connection.load(sys.argv[1] if len(sys.argv) > 1 else None)
    host = lab.hosts[0].name

    def on_host(*argv: str, given: bytes = b"") -> str:
        lockstep = Path(sys.executable).with_name("lockstep")
        command = [str(lockstep), "lab", "ssh", "--name", lab.name, host, "--"]
        done = subprocess.run(
            [*command, shlex.join(["sudo", "-n", *argv])], input=given, capture_output=True
        )
        if done.returncode != 0:
            sys.exit(
                f"{host}: {argv[0]} ended with {done.returncode}:\n{done.stderr.decode()[-2000:]}"
            )
        return done.stdout.decode()

    program = f"{FOLDER}/gateway_on_host.py"
    on_host("mkdir", "-p", FOLDER)
    try:
        on_host("tee", program, given=Path(__file__).with_name("gateway_on_host.py").read_bytes())
        words = [f"{TOOLS_VENV}/bin/python", program, str(ROUNDS)]
        if caddy := shutil.which("caddy"):
            there = f"{FOLDER}/caddy"
            on_host("install", "-m", "755", "/dev/stdin", there, given=Path(caddy).read_bytes())
            words.append(there)
        found = json.loads(on_host(*words))
    finally:
        on_host("rm", "-rf", FOLDER)
    return report(found)


def report(found: Mapping[str, Mapping[str, list[float]]]) -> int:
    """Print a line for each way; 1 where the gateway is beyond a bound.

    Args:
        found: Way → figure → one value a round, as `gateway_on_host.measured` gives them.
    """
    middle = {
        way: {name: statistics.median(values) for name, values in figures.items()}
        for way, figures in found.items()
    }
    direct = middle["direct"]
    print("way      first byte          64 streams            as fast as it goes  1,000 at rest")
    for way, one in middle.items():
        rest = f"{one['idle_held']:.0f}, {one['idle_mb']:.0f} MB" if "idle_mb" in one else ""
        print(
            f"{way:<8} {one['first_ms']:5.2f} ms (+{one['first_ms'] - direct['first_ms']:4.2f})   "
            f"{one['tok_s']:6.0f} tok/s ({one['tok_s'] / direct['tok_s']:.3f})  "
            f"{one['most_tok_s']:8.0f} tok/s        {rest}"
        )
    ours = middle["gateway"]
    bounds = (
        (f"added at most {ADDED_MS} ms", ours["first_ms"] - direct["first_ms"] <= ADDED_MS),
        (f"at least {SHARE:.0%} of the tokens", ours["tok_s"] >= SHARE * direct["tok_s"]),
        (f"{STREAMS} streams at rest end well", ours["idle_held"] == STREAMS),
        (f"under {MEMORY_MB:.0f} MB then", ours["idle_mb"] < MEMORY_MB),
    )
    for what, kept in bounds:
        print(f"{'ok' if kept else 'WRONG':<8} {what}")
    return 0 if all(kept for _, kept in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())
