"""The engine's name changes with what is inside it, and with nothing else."""

from dataclasses import replace

import pytest
from a_spark import pins_for, spark

from lockstep.core.errors import ResolveError
from lockstep.lock.engine_id import engine_id

PLAN = spark()
PINS = pins_for(PLAN)
PINNED = f"transformers @ git+https://github.com/huggingface/transformers.git@{40 * 'c'}"


def identity(**data: object) -> str:
    plan = spark(**data)
    return engine_id(plan.settings, pins_for(plan))


def test_an_engines_name_is_of_its_content_and_not_of_where_that_comes_from():
    mirror = {"python_index": "http://10.0.0.5/simple", "git": {"https://": "git://mirror/"}}
    assert identity(sources=mirror) == identity()


@pytest.mark.parametrize(
    "data",
    [
        {"python": "3.13"},
        {"engine": {"commit": 40 * "b"}},
        {"engine": {"transformers": PINNED}},
        {"engine": {"precompiled_commit": 40 * "d"}},
        {"engine": {"build_environment": {"MAX_JOBS": "4"}}},
    ],
)
def test_what_the_inventory_says_of_the_engine_changes_it(data: dict[str, object]):
    assert identity(**data) != identity()


def test_another_file_of_a_package_or_of_what_builds_it_changes_it():
    for name in ("engine", "engine-build"):
        [first, *other_packages] = PINS.python[name].packages
        packages = (replace(first, sha256=64 * "0"), *other_packages)
        python = {**PINS.python, name: replace(PINS.python[name], packages=packages)}
        assert engine_id(PLAN.settings, replace(PINS, python=python)) != identity()


@pytest.mark.parametrize("part", ["git", "python", "precompiled"])
def test_an_unresolved_part_is_refused(part: str):
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(PLAN.settings, replace(PINS, **{part: {}}))
