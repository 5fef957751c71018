"""Many kinds of drift, one at a time: each is named, and what a deploy can put right is then right.

`planted.py` has the kinds. Where it says so, the remedy that `diff` names is what undoes them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

from planted import ENGINE, PLANTS
from stack import INVENTORY, REPOSITORY, Stack

# What would make others impossible when all are planted together: these come last.
LAST = ("a weight that is gone", "a link to another generation")


def test_every_kind_of_drift_is_named_with_who_puts_it_right(deployed: Stack) -> None:
    program = REPOSITORY / "tests/proofs/drifting.py"
    done = subprocess.run(
        [sys.executable, str(program), str(INVENTORY)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **deployed.environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    unnamed = {
        name: answer["found"][name]
        for name, plant in PLANTS.items()
        if not any(
            kind == plant.kind and plant.item in item and how == plant.how
            for kind, item, how in answer["found"][name]
        )
    }
    print(f"{len(PLANTS) - len(unnamed)} of {len(PLANTS)} planted kinds of drift were named")
    assert len(PLANTS) >= 60
    assert unnamed == {}
    # Each was gone before the next was planted, and nothing else was ever named for good.
    assert answer["after"] == answer["before"]


def test_after_a_deploy_what_it_can_put_right_is_gone(deployed: Stack) -> None:
    before = json.loads(deployed.diff("--json").stdout)["differences"]
    assert [item for item in before if item["how"] == "deploy"] == []
    names = [name for name, plant in PLANTS.items() if plant.how == "deploy"]
    for name in (*(name for name in names if name not in LAST), *LAST):
        deployed.two.root(f"bash -c {shlex.quote(PLANTS[name].shell)}")
    done = deployed.diff("--fix", "--json")
    left = json.loads(done.stdout)["differences"]
    deployed.two.root("rm -rf /run/drift-* /opt/lockstep/engines/other")
    assert [item for item in left if item["how"] == "deploy"] == [], done.stderr[-3000:]
    assert left == before, done.stderr[-3000:]
    assert done.returncode == (1 if before else 0)
    assert deployed.two.run(f"test -e {ENGINE}/check.json").code == 0
    assert deployed.good_deploy().changed == set()
