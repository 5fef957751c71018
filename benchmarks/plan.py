"""What `lockstep plan` costs: CPU seconds beyond the start of Python, best of several runs."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5


def cpu_seconds(code: str) -> float:
    """User and system CPU of one fresh interpreter that runs ``code``, best of RUNS."""
    best = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
        best = min(best, spent)
    return best


def main() -> None:
    """Print the floor, the imports, and the plan for the two hosts of inventories/spark.py."""
    floor = cpu_seconds("pass")
    imports = cpu_seconds("import lockstep.cli.plan")
    whole = cpu_seconds(
        "from lockstep.cli.plan import plan\nplan(['inventories/spark.py'], standalone_mode=False)"
    )
    print(f"python -c pass              {floor:.2f} s CPU")
    print(f"with the modules imported   {imports:.2f} s CPU")
    print(f"lockstep plan, two hosts    {whole:.2f} s CPU, {whole - floor:.2f} s beyond Python")


if __name__ == "__main__":
    main()
