"""A program that a host runs from standard input brings all that it imports, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lockstep.files import sent

PROGRAM = "lockstep.probes.together"
READERS = [f"lockstep.probes.{name}" for name in ("intruders", "weights", "generations")]


def test_a_module_comes_with_all_that_it_imports() -> None:
    found = sent.texts(*READERS)
    assert {"lockstep.onhost.records.ours", "lockstep.onhost.weights.weights_spec"} <= set(found)
    # Of a package nothing but its name: what its own file imports is not for a host.
    assert found["lockstep"] == found["lockstep.probes"] == found["lockstep.onhost"] == ""
    assert not [name for name in found if name.startswith("lockstep.files")]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_can_be_asked_alone(reader: str) -> None:
    name = reader.rpartition(".")[2]
    question = {"intruders": {}, "weights": {"spec": "/none"}, "generations": {"folder": "/none"}}
    done = subprocess.run(
        [sys.executable, *sent.COMMAND[1:]],
        input=sent.document(PROGRAM, {name: question[name]}, reader),
        # Where no module of ours could be found.
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"answers": {name: {}}, "faults": {}}
