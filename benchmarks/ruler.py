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
# Packages of vllm's extra `bench` that a server does not need; the lab's index lacks them.
EXTRA = ("pandas", "python-dateutil", "pytz", "six", "tzdata")


def main() -> int:
    """Print both rulers' figures; 1 where their middle halves do not overlap."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    # Reading the lab's inventory moves this process into a network without a way out.
    package_archive = _pack_packages()
    place = reach.place(INVENTORY, "spark1")
    hot = reach.hot(place)
    _on_host(place, f"rm -rf {FOLDER} && mkdir -p {FOLDER} && tar -x -C {FOLDER}", package_archive)
    recipe = next(t.recipe for t in place.plan.models if t.name == hot.name)
    hub = f"{place.plan.settings.paths.hub_cache}/hub/models--{recipe.model.replace('/', '--')}"
    commit = _on_host(place, f"ls {hub}/snapshots", b"").split()[0]
    job = side_by_side.Job(
        hot.engine_url or hot.url,
        hot.served_name,
        f"{hub}/snapshots/{commit}",
        rounds,
        requests_per_stream=len(SHAPES),
    )
    variables = shlex.join(f"{key}={value}" for key, value in ENVIRONMENT.items())
    program = f"cd {FOLDER} && env {variables} {PYTHON} -m benchmarks.side_by_side"
    rows = side_by_side.read(_on_host(place, program, json.dumps(asdict(job)).encode()))
    faults = [fault for row in rows for fault in row.faults]
    print(f"{len(rows)} rounds; at once: {sum(row.at_once for row in rows)}; faults: {faults}")
    ratios = side_by_side.ratios(rows)
    if not any(ratio.name == "first_s" for ratio in ratios):
        sys.exit("too few answers came token by token. Let nothing else run here, or ask for more")
    for ratio in ratios:
        print(f"{ratio.name:<14} {ratio.summary()}   {'agree' if ratio.agree else 'DIFFER'}")
    return 0 if all(ratio.agree for ratio in ratios) else 1


def _pack_packages() -> bytes:
    """Pack these packages and vLLM's extra for its benchmark, to lie beside the engine's own."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, "--only-binary", ":all:", *EXTRA], check=True)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(folder, "site")
            archive.add(Path(lockstep.__file__).parent, "site/lockstep")
            archive.add(Path(__file__).parent, "site/benchmarks")
    return buffer.getvalue()


def _on_host(place: reach.BenchAddress, script: str, stdin: bytes) -> str:
    argv = place.where.command(["sudo", "-n", "sh", "-c", script])
    result = subprocess.run(argv, input=stdin, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{place.where.name}: {result.stderr.decode()[-2000:]}")
    return result.stdout.decode()


if __name__ == "__main__":
    sys.exit(main())
