"""The time that a switch adds to the engine's own stop and start.

`make bench`, with the lab deployed (`make deploy`): stand-in engines on one host. The same change
of the hot model is made there and back, by `systemctl stop` and `systemctl start` and by
`switch.sh`. The ways take turns in one run, so that the difference holds on a machine whose speed
drifts. The clock runs on the host. No SSH is in the figure; sudo and everything else that an
operator waits for is.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from pathlib import Path

from lab.host import connection

RUNS = 7
TARGET_S = 1.0
UNITS = {"qwen": "vllm-qwen36.service", "mistral": "sglang-mistral4.service"}
QUICK = {"load_seconds": 0.5, "stop_seconds": 0.1}
KNOBS = [f"/run/unified-memory/standin-{engine}.json" for engine in ("vllm", "sglang")]

# Runs on the host as the operator.
_PROGRAM = """
import json, subprocess, sys, time
runs, units = json.loads(sys.argv[1])
switch = "/data/scripts/llm/switch.sh"
def timed(*commands):
    began = time.perf_counter()
    for argv in commands:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
def by_hand(old, new):
    systemctl = ["sudo", "-n", "systemctl"]
    return timed([*systemctl, "stop", units[old]], [*systemctl, "start", units[new]])
def by_switch(old, new):
    return timed([switch, new])
subprocess.run([switch, "qwen"], check=True, stdout=subprocess.DEVNULL)
found = {"hand": [], "switch": []}
for _ in range(runs):
    for name, how in (("hand", by_hand), ("switch", by_switch)):
        there, back = how("qwen", "mistral"), how("mistral", "qwen")
        found[name].append((there + back) / 2)
subprocess.run([switch, "none"], check=True, stdout=subprocess.DEVNULL)
print(json.dumps(found))
"""


def main() -> int:
    """Print the medians; 1 when a switch adds a second or more."""
    lab = connection.load(sys.argv[1] if len(sys.argv) > 1 else None)
    host = lab.hosts[0].name
    folder = Path(KNOBS[0]).parent

    def on_host(*argv: str) -> str:
        result = connection.run_on(lab, host, [shlex.join(argv)])
        if result.returncode != 0:
            sys.exit(f"{host}: {argv[0]} ended with {result.returncode}:\n{result.stderr[-2000:]}")
        return result.stdout

    knobs = json.dumps(QUICK)
    on_host("sudo", "-n", "sh", "-c", f"echo '{knobs}' | tee {shlex.join(KNOBS)}")
    try:
        durations = json.loads(on_host("python3", "-c", _PROGRAM, json.dumps([RUNS, UNITS])))
    finally:
        on_host("sudo", "-n", "find", str(folder), "-name", "standin-*.json", "-delete")
    hand, switch = (statistics.median(durations[name]) for name in ("hand", "switch"))
    print(f"engine's own stop and start (systemctl)  {hand:6.2f} s")
    print(f"switch.sh                                {switch:6.2f} s")
    print(f"added by the switch                      {switch - hand:6.2f} s  (< {TARGET_S} s)")
    return 0 if switch - hand < TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
