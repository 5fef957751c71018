"""Our ruler beside vLLM's own `vllm bench serve`, on the lab's real engine.

With the lab deployed and its real vLLM hot (`switch.sh tiny` on the first host):

    LOCKSTEP_LAB=NAME python -m benchmarks.ruler [ROUNDS]

Both run on the host, by the engine's own Python (`benchmarks.side_by_side`).
"""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path

import lockstep
from benchmarks import side_by_side
from lockstep.bench import reach
from lockstep.bench.prompts import SHAPES

INVENTORY = Path("inventories/lab.py")
PYTHON = "/opt/lockstep/engines/current/venv/bin/python"
FOLDER = "/var/tmp/lockstep-ruler"
ENVIRONMENT = {
    "HOME": FOLDER,
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": f"{FOLDER}/site",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
# What vllm's extra `bench` adds and a server does not need; the lab's index does not have it.
EXTRA = ("pandas", "python-dateutil", "pytz", "six", "tzdata")


def main() -> int:
    """Print both rulers' figures; 1 where their middle halves do not overlap."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    # Reading the lab's inventory moves this process into a network without a way out.
    packed = _packed()
    place = reach.place(INVENTORY, "spark1")
    hot = reach.hot(place)
    _on_host(place, f"rm -rf {FOLDER} && mkdir -p {FOLDER} && tar -x -C {FOLDER}", packed)
    recipe = next(t.recipe for t in place.plan.targets if t.name == hot.name)
    hub = f"{place.plan.settings.paths.hub_cache}/hub/models--{recipe.model.replace('/', '--')}"
    commit = _on_host(place, f"ls {hub}/snapshots", b"").split()[0]
    job = side_by_side.Job(
        hot.engine_url or hot.url, hot.model, f"{hub}/snapshots/{commit}", rounds, each=len(SHAPES)
    )
    variables = shlex.join(f"{key}={value}" for key, value in ENVIRONMENT.items())
    program = f"cd {FOLDER} && env {variables} {PYTHON} -m benchmarks.side_by_side"
    rows = side_by_side.read(_on_host(place, program, json.dumps(asdict(job)).encode()))
    faults = [fault for row in rows for fault in row.faults]
    print(f"{len(rows)} rounds; at once: {sum(row.at_once for row in rows)}; faults: {faults}")
    found = side_by_side.ratios(rows)
    if not any(one.name == "first_s" for one in found):
        sys.exit("too few answers came token by token. Let nothing else run here, or ask for more")
    for one in found:
        print(f"{one.name:<14} {one.shown()}   {'agree' if one.agree else 'DIFFER'}")
    return 0 if all(one.agree for one in found) else 1


def _packed() -> bytes:
    """These packages, and vLLM's extra for its benchmark: beside the engine's environment."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, "--only-binary", ":all:", *EXTRA], check=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, "site")
            archive.add(Path(lockstep.__file__).parent, "site/lockstep")
            archive.add(Path(__file__).parent, "site/benchmarks")
    return packed.getvalue()


def _on_host(place: reach.Place, script: str, given: bytes) -> str:
    argv = place.where.command(["sudo", "-n", "sh", "-c", script])
    done = subprocess.run(argv, input=given, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{place.where.name}: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


if __name__ == "__main__":
    sys.exit(main())
