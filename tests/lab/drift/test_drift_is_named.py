"""Many kinds of drift: each is named, and what a deploy can put right is then right.

`planted.py` has the kinds, and says which are planted at one time. Where it says so, the remedy
that `diff` names is what undoes them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from planted import ALONE, ENGINE, PLANTS
from stack import INVENTORY, REPOSITORY, Deployed, Stack

#: Is put right elsewhere: by an installation from the beginning (tests/unit/onhost/environment/
#: test_engine_build.py, deploy/test_interrupted), and with the tools (deploy/test_proxy).
ELSEWHERE = ("an installation that was cut off", "a tool that was uninstalled")


@pytest.fixture(scope="module")
def answer(stack: Stack, first: Deployed) -> dict[str, Any]:
    """Differences before, of each plant on the second host, and after."""
    assert first.code == 0, first.output[-8000:]
    program = REPOSITORY / "tests/proofs/drifting.py"
    done = subprocess.run(
        [sys.executable, str(program), str(INVENTORY)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **stack.environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_kind_of_drift_is_named_with_who_puts_it_right(answer: dict[str, Any]) -> None:
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
    # Each was gone before the next were planted, and nothing else was ever named for good.
    assert answer["after"] == answer["before"]


def test_after_a_deploy_what_it_can_put_right_is_gone(
    answer: dict[str, Any], deployed: Stack
) -> None:
    two = deployed.two
    before = {tuple(each) for each in answer["before"]}
    names = [name for name, plant in PLANTS.items() if plant.how == "deploy"]
    names = [name for name in names if name not in ELSEWHERE]
    names.sort(key=lambda name: name in ALONE)
    two.root("; ".join(f"bash -c {shlex.quote(PLANTS[name].shell)} || exit" for name in names))
    done = deployed.diff("--fix", "--yes", "--json", "--limit", two.name)
    left = json.loads(done.stdout)["differences"]
    two.root("rm -rf /run/drift-* /opt/lockstep/engines/other")
    assert [item for item in left if item["how"] == "deploy"] == [], done.stderr[-3000:]
    new = [item for item in left if (item["kind"], item["item"], item["how"]) not in before]
    assert new == [], done.stderr[-3000:]
    assert done.returncode == (1 if left else 0)
    assert two.run(f"test -e {ENGINE}/check.json").code == 0
