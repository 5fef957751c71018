"""The engine's name changes with what is inside it, and with nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from a_spark import environment, precompiled_pin

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Settings, Sources, VenvEngine
from lockstep.lock.engine_id import engine_id
from lockstep.lock.packages import engine_precompiled, engine_repositories, engine_sets
from lockstep.lock.pins import GitPin, Pins

SETTINGS = Settings(name="spark", models={})


def record(settings: Settings, version: str = "1.0", commit: str = "a" * 40) -> Pins:
    python = {item.key: environment(item, version, commit) for item in engine_sets(settings)}
    git = {
        item.url: GitPin(item.branch, item.commit or commit)
        for item in engine_repositories(settings)
    }
    wheels = {item.key: precompiled_pin(item, commit) for item in engine_precompiled(settings)}
    return Pins(python=python, git=git, precompiled=wheels)


def identity(settings: Settings = SETTINGS, **changes: str) -> str:
    return engine_id(settings, record(settings, **changes))


PINNED = f"transformers @ git+https://github.com/huggingface/transformers.git@{40 * 'c'}"


def test_an_engines_name_is_of_its_content_and_not_of_where_that_comes_from() -> None:
    mirror = Sources(python_index="http://10.0.0.5/simple", git={"https://": "git://mirror/"})
    assert len(identity()) == 12 and int(identity(), 16) >= 0
    assert identity(replace(SETTINGS, sources=mirror)) == identity()


def test_every_part_of_the_environment_changes_it() -> None:
    engine = SETTINGS.engine
    changed_ids = [
        identity(version="1.1"),
        identity(commit="b" * 40),
        identity(replace(SETTINGS, python="3.13")),
        identity(replace(SETTINGS, engine=VenvEngine(git=None, release="vllm==0.32.0"))),
    ]
    changes: list[dict[str, Any]] = [
        *({"commit": "c" * 40}, {"transformers": PINNED}, {"precompiled": False}),
        *({"precompiled_commit": 40 * "c"}, {"build_environment": {"MAX_JOBS": "4"}}),
        {"flashinfer": False},
    ]
    for change in changes:
        changed_ids.append(identity(replace(SETTINGS, engine=replace(engine, **change))))
    assert len({identity(), *changed_ids}) == len(changed_ids) + 1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("git", "not resolved"),
        ("python", "not resolved"),
        ("precompiled", "the fork's compiled wheel is not resolved"),
    ],
)
def test_an_unresolved_part_is_refused(part: str, message: str) -> None:
    with pytest.raises(ResolveError, match=message):
        engine_id(SETTINGS, replace(record(SETTINGS), **{part: {}}))
