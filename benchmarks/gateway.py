"""The cost of the gateway, beside direct requests to its engine and Caddy's plain reverse proxy.

`make bench`, with the lab deployed (`make deploy`). One host has an engine with a fixed pace of
tokens and three ways to it. The ways take turns in one run, so that ratios hold on a machine whose
speed drifts. The engine is quicker than any model, so the milliseconds count. `gateway_on_host.py`
is the program there.
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
    """Print the medians; return 1 when a bound is not kept."""
    lab = connection.load(sys.argv[1] if len(sys.argv) > 1 else None)
    host = lab.hosts[0].name

    def on_host(*argv: str, stdin: bytes = b"") -> str:
        lockstep = Path(sys.executable).with_name("lockstep")
        command = [str(lockstep), "lab", "ssh", "--name", lab.name, host, "--"]
        result = subprocess.run(
            [*command, shlex.join(["sudo", "-n", *argv])], input=stdin, capture_output=True
        )
        if result.returncode != 0:
            sys.exit(
                f"{host}: {argv[0]} ended with "
                f"{result.returncode}:\n{result.stderr.decode()[-2000:]}"
            )
        return result.stdout.decode()

    program = f"{FOLDER}/gateway_on_host.py"
    on_host("mkdir", "-p", FOLDER)
    try:
        on_host("tee", program, stdin=Path(__file__).with_name("gateway_on_host.py").read_bytes())
        words = [f"{TOOLS_VENV}/bin/python", program, str(ROUNDS)]
        if caddy := shutil.which("caddy"):
            caddy_path = f"{FOLDER}/caddy"
            on_host(
                "install", "-m", "755", "/dev/stdin", caddy_path, stdin=Path(caddy).read_bytes()
            )
            words.append(caddy_path)
        results = json.loads(on_host(*words))
    finally:
        on_host("rm", "-rf", FOLDER)
    return report(results)


def report(results: Mapping[str, Mapping[str, list[float]]]) -> int:
    """Print a line for each way; return 1 when the gateway is beyond a bound.

    Args:
        results: Way → figure → one value a round, from `gateway_on_host.measure`.
    """
    middle = {
        way: {name: statistics.median(values) for name, values in figures.items()}
        for way, figures in results.items()
    }
    direct = middle["direct"]
    print("way      first byte          64 streams            as fast as it goes  1,000 at rest")
    for way, medians in middle.items():
        idle_text = (
            f"{medians['idle_held']:.0f}, {medians['idle_mb']:.0f} MB"
            if "idle_mb" in medians
            else ""
        )
        print(
            f"{way:<8} {medians['first_ms']:5.2f} ms "
            f"(+{medians['first_ms'] - direct['first_ms']:4.2f})   "
            f"{medians['tok_s']:6.0f} tok/s ({medians['tok_s'] / direct['tok_s']:.3f})  "
            f"{medians['most_tok_s']:8.0f} tok/s        {idle_text}"
        )
    gateway_figures = middle["gateway"]
    bounds = (
        (
            f"added at most {ADDED_MS} ms",
            gateway_figures["first_ms"] - direct["first_ms"] <= ADDED_MS,
        ),
        (
            f"at least {SHARE:.0%} of the tokens",
            gateway_figures["tok_s"] >= SHARE * direct["tok_s"],
        ),
        (f"{STREAMS} streams at rest end well", gateway_figures["idle_held"] == STREAMS),
        (f"under {MEMORY_MB:.0f} MB then", gateway_figures["idle_mb"] < MEMORY_MB),
    )
    for description, is_met in bounds:
        print(f"{'ok' if is_met else 'WRONG':<8} {description}")
    return 0 if all(is_met for _, is_met in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())
