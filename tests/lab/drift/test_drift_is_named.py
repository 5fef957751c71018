"""Many kinds of drift: each is named, and then a deploy or its remedy puts it right.

`planted_drifts.py` has the kinds, and says which are planted at one time. Where it says so, the
remedy that `diff` names undoes them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from planted_drifts import ALONE, ENGINE, PLANTS
from stack import INVENTORY, REPOSITORY, Stack

#: Is put right elsewhere: by an installation from the beginning (tests/unit/onhost/environment/
#: test_engine_build.py, deploy/test_interrupted), and with the tools (deploy/test_proxy).
ELSEWHERE = ("an installation that was cut off", "a tool that was uninstalled")


@pytest.fixture(scope="module")
def answer(stack: Stack, first: object) -> dict[str, Any]:
    """Differences before, of each plant on the second host, and after."""
    program = REPOSITORY / "tests/proofs/drifting.py"
    result = subprocess.run(
        [sys.executable, str(program), str(INVENTORY)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **stack.environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_kind_of_drift_is_named_with_who_puts_it_right(answer: dict[str, Any]) -> None:
    unnamed_plants = {
        name: answer["found"][name]
        for name, plant in PLANTS.items()
        if not any(
            kind == plant.kind and plant.item in item and how == plant.how
            for kind, item, how in answer["found"][name]
        )
    }
    print(f"{len(PLANTS) - len(unnamed_plants)} of {len(PLANTS)} planted kinds of drift were named")
    assert len(PLANTS) >= 60
    assert unnamed_plants == {}
    # Each was gone before the next were planted, and nothing else was ever named for good.
    assert answer["after"] == answer["before"]


def test_after_a_deploy_what_it_can_put_right_is_gone(
    answer: dict[str, Any], deployed_stack: Stack
) -> None:
    two = deployed_stack.two
    earlier_drift = {tuple(entry) for entry in answer["before"]}
    names = [name for name, plant in PLANTS.items() if plant.how == "deploy"]
    names = [name for name in names if name not in ELSEWHERE]
    names.sort(key=lambda name: name in ALONE)
    two.root("; ".join(f"bash -c {shlex.quote(PLANTS[name].shell)} || exit" for name in names))
    result = deployed_stack.diff("--fix", "--yes", "--json", "--limit", two.name)
    later_drift = json.loads(result.stdout)["differences"]
    two.root("rm -rf /run/drift-* /opt/lockstep/engines/other")
    assert [item for item in later_drift if item["how"] == "deploy"] == [], result.stderr[-3000:]
    new = [
        item
        for item in later_drift
        if (item["kind"], item["item"], item["how"]) not in earlier_drift
    ]
    assert new == [], result.stderr[-3000:]
    assert result.returncode == (1 if later_drift else 0)
    assert two.run(f"test -e {ENGINE}/check.json").code == 0
