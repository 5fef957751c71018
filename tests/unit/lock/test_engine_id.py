"""The engine's name changes with what is inside it, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

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


def test_it_is_twelve_hexadecimal_digits_and_stays() -> None:
    assert len(identity()) == 12 and int(identity(), 16) >= 0
    assert identity() == identity()


def test_every_part_of_the_environment_changes_it() -> None:
    engine = SETTINGS.engine
    changed_ids = [
        identity(version="1.1"),
        identity(commit="b" * 40),
        identity(replace(SETTINGS, python="3.13")),
        identity(replace(SETTINGS, engine=replace(engine, commit="c" * 40))),
        identity(replace(SETTINGS, engine=replace(engine, transformers=PINNED))),
        identity(replace(SETTINGS, engine=replace(engine, precompiled=False))),
        identity(replace(SETTINGS, engine=replace(engine, precompiled_commit=40 * "c"))),
        identity(replace(SETTINGS, engine=replace(engine, build_environment={"MAX_JOBS": "4"}))),
        identity(replace(SETTINGS, engine=replace(engine, flashinfer=False))),
        identity(replace(SETTINGS, engine=VenvEngine(git=None, release="vllm==0.32.0"))),
    ]
    assert len({identity(), *changed_ids}) == len(changed_ids) + 1


def test_where_it_comes_from_does_not() -> None:
    mirror = Sources(python_index="http://10.0.0.5/simple", git={"https://": "git://mirror/"})
    assert identity(replace(SETTINGS, sources=mirror)) == identity()


def test_an_unresolved_part_is_refused() -> None:
    whole = record(SETTINGS)
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(SETTINGS, Pins(python=whole.python))
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(SETTINGS, Pins(git=whole.git))
    with pytest.raises(ResolveError, match="the fork's compiled wheel is not resolved"):
        engine_id(SETTINGS, replace(whole, precompiled={}))
